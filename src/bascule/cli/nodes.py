"""``bascule nodes``: the nodes of a running registry, and what each serves."""

from __future__ import annotations

import argparse

from bascule.cli.command import show, shown
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import Parser, actions_of, many, option, switch
from bascule.cli.table import render_table
from bascule.errors import InvalidRecord
from bascule.model.assignment import Assignment
from bascule.wire.api.nodes import NewAssignment
from bascule.wire.api.overview import NodeDetail, NodeList, NodeShown

_ASSIGN_EXAMPLES = """\
  bascule nodes assign east --task billing --task support
  bascule nodes assign edge --label dmz                 # of every task, the servers with that tag
  bascule nodes assign lab --task billing --label lab   # of one task, the servers with that tag
  bascule nodes assign east --all

A node is sent the records, client tokens and secrets of what it is assigned, and nothing else. It
may be assigned something before its first start. Without an assignment it serves everything.
"""


def fill(group: Parser) -> None:
    """Add the commands of ``nodes``."""
    actions = actions_of(group)
    name = option("name", "NAME", "the name of its token")
    verb(actions, "list", "list the nodes, how they stand and what they are assigned", list_nodes)
    verb(actions, "show", "one node, with the tasks and servers that it serves", show_node, name)
    verb(
        actions, "assign", "say what a node serves", assign, name, examples=_ASSIGN_EXAMPLES
    ).takes(
        many("--task", "ID", "a task that it serves; repeatable", default=None),
        many("--label", "TAG", "only servers with this tag; repeatable", default=None),
        switch("--all", "everything, as before it was assigned anything"),
    )


def list_nodes(arguments: argparse.Namespace) -> int:
    """Print the nodes."""
    found = ask(arguments, lambda registry: registry.nodes())
    columns = ["NODE", "STATE", "REVISION", "ASSIGNED", "SERVERS", "LAST SEEN", "NOTE"]
    table = render_table(columns, [*map(_row, found)], none="no node has reported")
    return show(arguments, NodeList(found), table)


def _row(node: NodeShown) -> list[str]:
    servers = ", ".join(f"{count} {state}" for state, count in node.servers.items())
    doubled = node.doubled_at
    return [
        shown(node.name),
        node.state,
        str(node.revision),
        shown(str(_assignment(node))),
        servers or "-",
        node.last_seen or "-",
        "-" if doubled is None else f"another process of this name was refused at {doubled}",
    ]


def _assignment(node: NodeShown) -> Assignment:
    return Assignment(tasks=node.tasks, labels=node.labels)


def show_node(arguments: argparse.Namespace) -> int:
    """Print one node."""
    name: str = arguments.name
    return _shown(arguments, ask(arguments, lambda registry: registry.node(name)))


def assign(arguments: argparse.Namespace) -> int:
    """Say what a node serves."""
    name: str = arguments.name
    given = _given(arguments)
    return _shown(arguments, ask(arguments, lambda registry: registry.assign(name, given), "admin"))


def _given(arguments: argparse.Namespace) -> NewAssignment:
    tasks: list[str] | None = arguments.task
    labels: list[str] | None = arguments.label
    named = bool(tasks or labels)
    if named == bool(arguments.all):
        raise InvalidRecord(["assign: give --task or --label, or --all for everything"])
    return NewAssignment(
        tasks=None if tasks is None else tuple(tasks),
        labels=None if labels is None else tuple(labels),
    )


def _shown(arguments: argparse.Namespace, found: NodeDetail) -> int:
    node = found.node
    by = "" if found.assigned_by is None else f", by {found.assigned_by} at {found.assigned_at}"
    doubled = node.doubled_at
    lines = [
        f"node {node.name}: {node.state}, revision {node.revision}",
        f"last seen: {node.last_seen or 'never'}",
        *([] if doubled is None else [f"another process of this name was refused at {doubled}"]),
        f"assigned: {_assignment(node)}{by}",
        f"tasks: {_words(found.serves_tasks)}",
        f"servers: {_words(found.serves_servers)}",
    ]
    return show(arguments, found, *map(shown, lines), warnings=found.warnings)


def _words(names: tuple[str, ...] | None) -> str:
    return "all" if names is None else ", ".join(names) or "none"
