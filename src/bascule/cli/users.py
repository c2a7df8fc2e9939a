"""``bascule users``: the people of a running registry, and who may use a tool."""

from __future__ import annotations

import argparse
from functools import partial

from bascule.cli.command import show, shown
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import STRICT, Parser, actions_of, many, option, switch
from bascule.cli.records import (
    EXPECTED,
    Noun,
    add_record_verbs,
    create,
    field,
    given,
    patch,
    table_of,
    words_of,
)
from bascule.cli.table import on_or_off, render_table, verdict
from bascule.errors import InvalidRecord
from bascule.model.pattern import PatternSet
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.policy.access import guess_target
from bascule.policy.compose import compose
from bascule.policy.who import Holder, holders
from bascule.wire.api.records import Plain

_ADD_EXAMPLES = """\
  bascule users add alice --display-name 'Alice A.' --group writers
  bascule users add bob --server notes --deny 'delete_*'
  bascule users add carol@example.com --read-only --disabled

A list that is not given does not narrow. Within a task, a person has what the task and the
person's record both allow. A person without a record is refused, but for tasks with users = "open",
where nothing narrows them: to refuse somebody everywhere, use bascule users disable.
"""
_WHO_EXAMPLES = """\
  bascule users who notes/delete_note
  bascule users who delete_note --json

One line for each person in each task; '-' is a token that is nobody's, '*' stands for people
without a record where a task says users = "open".
"""
_NOBODY = "nobody: no server allows such a tool, or there is no task"


def _filters(record: Plain) -> str:
    filters = [
        *(f"+{pattern}" for pattern in words_of(record.get("tool_allowlist"))),
        *(f"-{pattern}" for pattern in words_of(record.get("tool_denylist"))),
        *(["read-only"] if record.get("read_only") else []),
    ]
    return shown(" ".join(filters)) or "-"


def _servers(record: Plain) -> str:
    enabled = record.get("enabled_server_ids")
    return "all" if enabled is None else shown(" ".join(words_of(enabled))) or "none"


USERS = Noun(
    "user",
    {
        "user": field("user_id"),
        "name": field("display_name"),
        "state": lambda record: on_or_off(on=record.get("enabled") is not False),
        "groups": field("groups"),
        "servers": _servers,
        "tools": _filters,
        "own choice": lambda record: "yes" if table_of(record, "own") else "-",
        "file": field("owner"),
    },
)


def fill(group: Parser) -> None:
    """Add the commands of ``users``."""
    actions = actions_of(group)
    add_record_verbs(actions, USERS)
    verb(actions, "add", "add a person", add, examples=_ADD_EXAMPLES).takes(
        option("id", "ID", "what tokens and requests call the person"),
        option("--display-name", "TEXT", "what people call the person"),
        many("--group", "NAME", "a group of the person; repeatable", default=None),
        many("--server", "ID", "only these servers; repeatable", default=None),
        many("--allow", "PATTERN", "only these tools; repeatable", default=None),
        many("--deny", "PATTERN", "never these tools; repeatable", default=None),
        switch("--read-only", "only tools that are classed as read"),
        switch("--disabled", "add the person disabled"),
        STRICT,
    )
    person = option("id", "ID", "the person")
    for name, enabled in (("enable", True), ("disable", False)):
        run = partial(switch_user, enabled=enabled)
        verb(actions, name, f"{name} a person", run, person, EXPECTED)
    tool = option("tool", "TOOL", "in any form: notes/delete_note, mcp__notes__…, delete_note")
    summary = "who may use a tool, in which task, and why not the others"
    verb(actions, "who", summary, who, tool, examples=_WHO_EXAMPLES)


def add(arguments: argparse.Namespace) -> int:
    """Add a person from the words of a command line."""
    more = given(
        display_name=arguments.display_name,
        groups=arguments.group,
        enabled_server_ids=arguments.server,
        tool_allowlist=arguments.allow,
        tool_denylist=arguments.deny,
        read_only=arguments.read_only,
    )
    return create("user", arguments, {"user_id": arguments.id, **more} | _off(arguments))


def _off(arguments: argparse.Namespace) -> dict[str, bool]:
    return {"enabled": False} if arguments.disabled else {}


def switch_user(arguments: argparse.Namespace, *, enabled: bool) -> int:
    """Let a person in, or refuse them everywhere."""
    return patch("user", arguments, {"enabled": enabled})


def who(arguments: argparse.Namespace) -> int:
    """Print who may use a tool, and what stands in the way of the others."""
    snapshot = ask(arguments, lambda registry: registry.snapshot())
    found = [
        holder
        for server, tool in _targets(snapshot, arguments.tool)
        for holder in holders(snapshot, server, tool)
    ]
    rows = [_row(holder) for holder in found]
    header = ("tool", "task", "user", "verdict", "why")
    return show(arguments, {"holders": found}, render_table(header, rows, none=_NOBODY))


def _row(holder: Holder) -> list[str]:
    rule = f" by {holder.rule}" if holder.rule else ""
    why = holder.approval or f"{holder.reason}{rule}: {holder.meaning}"
    names = (f"{holder.server}/{holder.tool}", holder.task, holder.user or "-")
    return [*map(shown, names), verdict(holder.allowed), shown(why)]


def _targets(snapshot: Snapshot, name: str) -> list[tuple[str, str]]:
    """Read a tool's name in any spelling; a bare one is of every server whose record allows it."""
    everything = compose(snapshot)
    server, tool = guess_target(everything, name)
    if server:
        return [(server, tool)]
    if "/" in name or name.startswith(("mcp.", "mcp__")):
        raise InvalidRecord([f"{name}: names no server of the registry"])
    return [(one, name) for one, record in snapshot.servers.items() if _allows(record, name)]


def _allows(record: ServerRecord, tool: str) -> bool:
    return PatternSet(record.allowed_tools).first(record.server_id, tool) is not None
