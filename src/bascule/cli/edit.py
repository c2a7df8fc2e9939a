"""Changes of one thing: a pattern of a server, a server of a task, the usual task.

A change is read, made and written if nobody was faster: a write carries the revision that was
read, and when another writer came first, the change is made again on what is there now. What is
denied is denied when the command has ended: where another allowed pattern still covers it, the
platform's denylist gets it, by server and pattern.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from bascule.cli.command import nearest, show, shown, warn
from bascule.cli.command_line import typed
from bascule.cli.endpoint import ask, verb
from bascule.cli.next_steps import print_steps, session_of, steps_for
from bascule.cli.parser import Actions, one_of, option, switch
from bascule.cli.records import EXPECTED, table_of, words_of
from bascule.cli.task_choice import (
    default_task,
    keep_first_task,
    known_task,
    set_default_task,
    task_ids,
)
from bascule.client.http import ApiError
from bascule.client.registry import RegistryClient
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.json import JsonObject
from bascule.model.kinds import Kind
from bascule.model.snapshot import Snapshot
from bascule.policy.coverage import covers, overlaps
from bascule.wire.api.records import Plain, RecordWritten

PLATFORM: Kind = "platform"
_ALLOW_EXAMPLES = """\
  bascule servers allow time 'get_*'
  bascule servers allow notes delete_note
"""
_DENY_EXAMPLES = """\
  bascule servers deny notes delete_note
  bascule servers deny files 'write_*' 'delete_*'

If another allowed pattern still covers it ('*' covers everything), it is added to the platform's
denylist.
"""
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

Stored in the data directory, for commands on this machine. --task and BASCULE_TASK override it.
"""
_ATTEMPTS = 10
Change: TypeAlias = Callable[[Plain], JsonObject | None]


async def edit(
    registry: RegistryClient,
    kind: Kind,
    key: str,
    change: Change,
    *,
    expected_revision: int | None = None,
) -> RecordWritten:
    """Write the fields that ``change`` makes of a record; None: it is as it should be."""
    for left in reversed(range(_ATTEMPTS)):
        record = await registry.get(kind, key)
        revision: int = record["revision"] if expected_revision is None else expected_revision
        fields = change(record)
        if fields is None:
            return RecordWritten(revision=int(record["revision"]), record=record)
        try:
            return await registry.patch(kind, key, fields, expected_revision=revision)
        except ApiError as error:
            if error.code != "conflict" or expected_revision is not None or not left:
                raise
    raise AssertionError("the last attempt raises")


class _Edited(Struct):
    """What a command came to: the server, what to say about it, and what to do next."""

    written: RecordWritten
    warnings: list[str]
    steps: list[str]
    #: What allowed patterns cover, and the platform's denylist denies all the same.
    but_not: list[str] = []


Editing: TypeAlias = Callable[[RegistryClient, argparse.Namespace], Awaitable[_Edited]]


def _changing(kind: Kind, editing: Editing, arguments: argparse.Namespace) -> int:
    """Make a change of a server or a task, and say what it came to."""
    edited = ask(arguments, lambda registry: editing(registry, arguments), "admin")
    written = edited.written
    warnings = list(dict.fromkeys((*written.warnings, *edited.warnings)))
    plain = {"revision": written.revision, kind: written.record, "warnings": warnings}
    has = _allows(edited) if kind == "server" else _has(edited)
    text = f"{kind} {arguments.id} {has} (revision {written.revision})"
    show(arguments, plain, text, warnings=warnings)
    print_steps(edited.steps)
    return 0


def add_allowing_verbs(actions: Actions) -> None:
    """Add ``allow`` and ``deny``."""
    server = option("id", "ID", "the server")
    patterns = option("patterns", "PATTERN", "tools, with * and ?", nargs="+")
    for name, summary, editing, examples in (
        ("allow", "allow tools of a server", _allow, _ALLOW_EXAMPLES),
        ("deny", "deny tools of a server", _deny, _DENY_EXAMPLES),
    ):
        run = partial(_changing, "server", editing)
        verb(actions, name, summary, run, server, patterns, EXPECTED, examples=examples)


async def _allow(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    wanted = _patterns(arguments)

    written = await _edited(registry, "server", arguments, _adding("allowed_tools", wanted))
    denied = await _off_the_denylist(registry, arguments.id, wanted)
    warnings = [
        f"{pattern}: the platform's denylist still denies some of it ({entry})"
        for entry in denied
        for pattern in wanted
        if _is_about(entry, arguments.id, pattern)
    ]
    return _Edited(written, warnings, await steps_for(registry, [arguments.id], arguments))


async def _deny(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    dotted = [pattern for pattern in arguments.patterns if pattern.startswith(f"{arguments.id}.")]
    unwanted = [*_patterns(arguments), *dotted]  # which of the two is meant, its server knows

    def is_unwanted(allowed: str) -> bool:
        return any(covers(pattern, _bare(allowed)) for pattern in unwanted)

    change = _taking("allowed_tools", is_unwanted)
    written = await _edited(registry, "server", arguments, change)
    left = words_of(written.record.get("allowed_tools"))
    covered = {w: [one for one in left if overlaps(w, _bare(one))] for w in unwanted}
    listed = [f"{arguments.id}/{pattern}" for pattern, others in covered.items() if others]
    warnings = [
        f"{pattern} is on the platform's denylist now: allowed_tools still cover it "
        f"({', '.join(others)})"
        for pattern, others in covered.items()
        if others
    ]
    if listed:
        await edit(registry, PLATFORM, PLATFORM, _adding("tool_denylist", listed))
    return _Edited(written, warnings, [], [one for one, others in covered.items() if others])


async def _edited(
    registry: RegistryClient, kind: Kind, arguments: argparse.Namespace, change: Change
) -> RecordWritten:
    expected: int | None = arguments.expected_revision
    return await edit(registry, kind, arguments.id, change, expected_revision=expected)


def _adding(field: str, entries: list[str]) -> Change:
    """Return the change that adds to a list of a record what it has not yet."""

    def change(record: Plain) -> JsonObject | None:
        present = words_of(record.get(field))
        more = [entry for entry in entries if entry not in present]
        return {field: [*present, *more]} if more else None

    return change


def _taking(field: str, is_unwanted: Callable[[str], bool]) -> Change:
    """Return the change that takes entries away from a list of a record."""

    def change(record: Plain) -> JsonObject | None:
        present = words_of(record.get(field))
        kept = [entry for entry in present if not is_unwanted(entry)]
        return {field: kept} if kept != present else None

    return change


async def _off_the_denylist(
    registry: RegistryClient, server: str, patterns: list[str]
) -> list[str]:
    """Take this server's entries for these patterns away; return what stays on the list."""
    named = {f"{server}/{pattern}" for pattern in patterns}
    change = _taking("tool_denylist", named.__contains__)
    record = (await edit(registry, PLATFORM, PLATFORM, change)).record
    return words_of(record.get("tool_denylist"))


def _patterns(arguments: argparse.Namespace) -> list[str]:
    """Return the patterns without the server's own name before them, each once."""
    given: list[str] = arguments.patterns
    return list(dict.fromkeys(_own(pattern, arguments.id) for pattern in given))


def _own(pattern: str, server: str) -> str:
    """Return a pattern as a record has it, whichever way the tool was spelled.

    A tool that has its server's name and a dot in its own is meant by ``time/time.get``.
    """
    for prefix in (f"{server}/", f"mcp__{server}__", f"mcp.{server}.", f"{server}."):
        if pattern.startswith(prefix) and pattern != prefix:
            return pattern.removeprefix(prefix)
    return pattern


def _bare(pattern: str) -> str:
    return pattern.rpartition("/")[2]


def _is_about(entry: str, server: str, pattern: str) -> bool:
    owner, slash, glob = entry.partition("/")
    return (not slash or owner == server) and overlaps(glob if slash else entry, pattern)


def add_using_verbs(actions: Actions) -> None:
    """Add ``use``, ``drop`` and ``default``."""
    task = option("id", "TASK", "the task")
    servers = option("servers", "SERVER", "the servers", nargs="+")
    for name, summary, editing in (
        ("use", "add servers to a task", _use),
        ("drop", "remove servers from a task", _drop),
    ):
        run = partial(_changing, "task", editing)
        verb(actions, name, summary, run, task, servers, EXPECTED, examples=_USE_EXAMPLES)
    choosing = "show or set the task for commands that name none"
    chosen = option("id", "TASK", "the task", nargs="?")
    which = one_of(chosen, switch("--none", "remove the default"))
    verb(actions, "default", choosing, default, which, examples=_DEFAULT_EXAMPLES)


# --- servers


async def _use(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    wanted: list[str] = list(dict.fromkeys(arguments.servers))

    def change(record: Plain) -> Plain | None:
        policy = table_of(record, "mcp")
        if policy.get("default_server_ids") is None and policy.get("server_tags"):
            raise InvalidRecord([_by_tags(arguments, policy, wanted)])
        fields = _with(policy, wanted)
        return {"mcp": {**fields, "enabled": True}} if fields or not policy.get("enabled") else None

    written = await _edited(registry, "task", arguments, change)
    snapshot = await registry.snapshot()
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
        policy = table_of(record, "mcp")
        lists = {n: policy[n] for n in ("default_server_ids", "allowed_server_ids") if n in policy}
        kept = {n: [i for i in words_of(ids) if i not in unwanted] for n, ids in lists.items()}
        changed = {name: ids for name, ids in kept.items() if ids != words_of(lists[name])}
        return {"mcp": changed} if changed else None

    written = await _edited(registry, "task", arguments, change)
    snapshot = await registry.snapshot()
    still = [
        f"{server}: the task still has it, by its tags or its profile"
        for server in unwanted
        if server in session_of(snapshot, arguments.id).requested
    ]
    return _Edited(written, [*_unknown(snapshot, unwanted), *still], [])


def _by_tags(arguments: argparse.Namespace, policy: Plain, wanted: list[str]) -> str:
    tags = json.dumps(words_of(policy.get("server_tags"))[:1])
    words = f"servers set {wanted[0]} {shlex.quote(f'tags={tags}')}"
    return f"{arguments.id} chooses its servers by tags; give it one: {typed(words, arguments)}"


def _allows(edited: _Edited) -> str:
    allowed = shown(", ".join(words_of(edited.written.record.get("allowed_tools")))) or "nothing"
    but = f", but not {shown(', '.join(edited.but_not))}" if edited.but_not else ""
    return f"allows {allowed}{but}"


def _has(edited: _Edited) -> str:
    servers = words_of(table_of(edited.written.record, "mcp").get("default_server_ids"))
    return f"has {shown(', '.join(servers)) or 'no server'}"


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
    return show(arguments, {"default_task": task}, shown(task or "no default task"))


def after_adding(arguments: argparse.Namespace) -> None:
    """Say what a new task can do; the first one becomes the default where there is none."""
    notes = ask(arguments, lambda registry: _of_new(registry, arguments), "operator")
    warn(notes)


async def _of_new(registry: RegistryClient, arguments: argparse.Namespace) -> list[str]:
    snapshot = await registry.snapshot()
    keep_first_task(arguments, [*snapshot.tasks])
    return await read_only_notes(registry, snapshot, arguments.id, arguments)
