"""``bascule tasks use``, ``drop`` and ``default``: one server more or less, and the usual task.

Below: ``editing.py`` changes one thing, ``effective.py`` says what it came to. Above: ``tasks``.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from bascule.cli.command import nearest, print_json, shown, warn
from bascule.cli.command_line import typed
from bascule.cli.edit import Change, edit, words_of
from bascule.cli.endpoint import ask
from bascule.cli.impact import read_snapshot, session_of
from bascule.cli.next_steps import print_steps, steps_for
from bascule.cli.records import add_expected, verb
from bascule.cli.task_choice import (
    default_task,
    keep_first_task,
    known_task,
    set_default_task,
    task_ids,
)
from bascule.client.registry import Plain, RegistryClient, Written
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.json import is_object
from bascule.model.snapshot import Snapshot

#: How long a server may take to say what it claims of its tools, which is only a suggestion.
CLAIM_SECONDS = 20.0
_USE_EXAMPLES = """\
  bascule tasks use demo time
  bascule tasks drop demo time
"""
_DEFAULT_EXAMPLES = """\
  bascule tasks default
  bascule tasks default demo
  bascule tasks default --none

It is kept in the data directory, for commands on this machine. --task and BASCULE_TASK come first.
"""


class _Edited(Struct):
    written: Written
    warnings: list[str]
    steps: list[str]


def add_using_verbs(actions: Any) -> None:
    """Add ``use``, ``drop`` and ``default``."""
    for name, summary, run in (
        ("use", "give a task servers", use),
        ("drop", "take servers away from a task", drop),
    ):
        parser = verb(actions, name, summary, run, examples=_USE_EXAMPLES)
        parser.add_argument("id", metavar="TASK", help="the task")
        parser.add_argument("servers", metavar="SERVER", nargs="+", help="the servers")
        add_expected(parser)
    parser = verb(
        actions,
        "default",
        "show or choose the task of commands that name none",
        default,
        examples=_DEFAULT_EXAMPLES,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("id", metavar="TASK", nargs="?", help="the task")
    how.add_argument("--none", action="store_true", help="have no default any more")


# --- servers


def use(arguments: argparse.Namespace) -> int:
    """Add servers to what a task's sessions have."""
    return _say(arguments, ask(arguments, lambda registry: _use(registry, arguments)))


def drop(arguments: argparse.Namespace) -> int:
    """Take servers away from a task, also from what its sessions may ask for."""
    return _say(arguments, ask(arguments, lambda registry: _drop(registry, arguments)))


async def _use(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    wanted: list[str] = list(dict.fromkeys(arguments.servers))

    def change(record: Plain) -> Plain | None:
        policy = _policy(record)
        if policy.get("default_server_ids") is None and policy.get("server_tags"):
            raise InvalidRecord([_by_tags(arguments, policy, wanted)])
        fields = _with(policy, wanted)
        return {"mcp": {**fields, "enabled": True}} if fields or not policy.get("enabled") else None

    written = await _edited(registry, arguments, change)
    snapshot = await read_snapshot(registry)
    warnings = _left_out(snapshot, arguments.id, wanted)
    warnings += await read_only_notes(registry, snapshot, arguments.id, arguments)
    return _Edited(written, warnings, await steps_for(registry, wanted, arguments))


def _with(policy: Plain, wanted: list[str]) -> Plain:
    """Return the lists that change; a ceiling grows with what is used."""
    lists = {"default_server_ids": words_of(policy.get("default_server_ids"))}
    if policy.get("allowed_server_ids") is not None:
        lists["allowed_server_ids"] = words_of(policy["allowed_server_ids"])
    grown = {name: [*dict.fromkeys((*ids, *wanted))] for name, ids in lists.items()}
    return {name: ids for name, ids in grown.items() if ids != lists[name]}


async def _drop(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    unwanted: list[str] = arguments.servers

    def change(record: Plain) -> Plain | None:
        policy = _policy(record)
        lists = {n: policy[n] for n in ("default_server_ids", "allowed_server_ids") if n in policy}
        kept = {n: [i for i in words_of(ids) if i not in unwanted] for n, ids in lists.items()}
        changed = {name: ids for name, ids in kept.items() if ids != words_of(lists[name])}
        return {"mcp": changed} if changed else None

    written = await _edited(registry, arguments, change)
    snapshot = await read_snapshot(registry)
    still = [
        f"{server}: the task still has it, by its tags or its profile"
        for server in unwanted
        if server in session_of(snapshot, arguments.id).requested
    ]
    return _Edited(written, [*_unknown(snapshot, unwanted), *still], [])


async def _edited(
    registry: RegistryClient, arguments: argparse.Namespace, change: Change
) -> Written:
    expected: int | None = arguments.expected_revision
    return await edit(registry, "task", arguments.id, change, expected_revision=expected)


def _policy(record: Plain) -> Plain:
    policy = record.get("mcp")
    return {**policy} if is_object(policy) else {}


def _by_tags(arguments: argparse.Namespace, policy: Plain, wanted: list[str]) -> str:
    tags = json.dumps(words_of(policy.get("server_tags"))[:1])
    words = f"servers set {wanted[0]} {shlex.quote(f'tags={tags}')}"
    return f"{arguments.id} chooses its servers by tags; give it one: {typed(words, arguments)}"


def _say(arguments: argparse.Namespace, edited: _Edited) -> int:
    written = edited.written
    warnings = list(dict.fromkeys((*written.warnings, *edited.warnings)))
    if arguments.json:
        print_json({"revision": written.revision, "task": written.record, "warnings": warnings})
    else:
        servers = words_of(_policy(written.record).get("default_server_ids"))
        has = shown(", ".join(servers)) or "no server"
        print(f"task {arguments.id} has {has} (revision {written.revision})")
        warn(warnings)
    print_steps(edited.steps)
    return 0


# --- what a task comes to


def _unknown(snapshot: Snapshot, servers: Sequence[str]) -> list[str]:
    found: list[str] = []
    for server in servers:
        if server not in snapshot.servers:
            near = nearest(server, snapshot.servers, count=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f"there is no server {server!r}{hint}")
    return found


def _left_out(snapshot: Snapshot, task: str, wanted: Sequence[str]) -> list[str]:
    """Say which servers a session of the task would not have, other than for want of tools."""
    session = session_of(snapshot, task)
    steps = ("unknown_server", "deny_all", "server_disabled")  # told otherwise
    dropped = {one.server: one for one in session.dropped if one.reason not in steps}
    return [str(dropped[server]) for server in wanted if server in dropped]


async def read_only_notes(
    registry: RegistryClient, snapshot: Snapshot, task: str, arguments: argparse.Namespace
) -> list[str]:
    """Say which servers of a read-only task have no tool that is classed as reading."""
    if task not in snapshot.tasks:
        return []
    session = session_of(snapshot, task)
    if not any(source.read_only for source in session.bounds.filters):
        return []
    notes: list[str] = []
    for server in session.requested:
        record = snapshot.servers.get(server)
        if record is not None and not record.effects.read:
            notes += await _claims(registry, server, arguments)
    return notes


async def _claims(
    registry: RegistryClient, server: str, arguments: argparse.Namespace
) -> list[str]:
    """Say that nothing of a server is classed, and what it says of itself."""
    note = f"no tool of {server} is classed as reading, so a read-only task can call none of it"
    try:
        found = await registry.tools(server, seconds=CLAIM_SECONDS)
    except BasculeError as error:
        return [f"{note}; what it claims is not known ({error})"]
    reading = [tool.tool for tool in found if tool.claims_read_only]
    if not reading:
        return [f"{note}; it claims of none of its tools that they only read"]
    words = f"servers set {server} {shlex.quote(f'effects.read={json.dumps(reading)}')}"
    return [f"{note}; it claims that these only read, if you trust it: {typed(words, arguments)}"]


# --- the default


def default(arguments: argparse.Namespace) -> int:
    """Show, set or forget the default task."""
    if arguments.none:
        set_default_task(arguments, None)
    elif arguments.id is not None:
        set_default_task(arguments, known_task(arguments.id, ask(arguments, task_ids)))
    task = default_task(arguments)
    if arguments.json:
        print_json({"default_task": task})
    else:
        print(shown(task) if task is not None else "no default task")
    return 0


def after_adding(arguments: argparse.Namespace) -> None:
    """Say what a new task can do; the first one becomes the default where there is none."""
    notes = ask(arguments, lambda registry: _of_new(registry, arguments))
    warn(notes)


async def _of_new(registry: RegistryClient, arguments: argparse.Namespace) -> list[str]:
    snapshot = await read_snapshot(registry)
    keep_first_task(arguments, [*snapshot.tasks])
    return await read_only_notes(registry, snapshot, arguments.id, arguments)
