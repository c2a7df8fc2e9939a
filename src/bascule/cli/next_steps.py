"""What to type next: after a server was added, when a call was denied, when a list is empty.

Every line can be typed as it is. What a change comes to is told from the registry's records as
policy sees them: literal values are masked, and policy asks for none of them.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence

from bascule.cli.command import shown
from bascule.cli.command_line import typed
from bascule.cli.task_choice import default_task
from bascule.client.http import ApiError
from bascule.client.registry import RegistryClient
from bascule.control.secret_listing import secret_names
from bascule.model.explanation import Explanation
from bascule.model.json import JsonObject
from bascule.model.pattern import PatternSet
from bascule.model.person import PERSON_PATTERN
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.user import UserRecord
from bascule.policy.compose import Effective, compose, for_anybody

_SHOWN = 3
_SECRET = re.compile(r"\bsecret (?:named )?'([^']+)'")
#: A person as a refusal or a rule names them, and whether the rule is of their own choice.
_PERSON = re.compile(rf"\buser '?({PERSON_PATTERN.strip('^$')})'?( own )?", re.ASCII)
_OF_PEOPLE = frozenset(
    {
        "unknown_user",
        "user_disabled",
        "group_not_allowed",
        "user_not_enabled",
        "user_not_allowlisted",
        "user_denied",
        "user_read_only",
    }
)


def print_steps(steps: Sequence[str]) -> None:
    """Print commands to type, beside the results."""
    if steps:
        print("Next:", *(f"  {step}" for step in steps), sep="\n", file=sys.stderr)


async def steps_for(
    registry: RegistryClient, servers: Sequence[str], arguments: argparse.Namespace
) -> list[str]:
    """Return what is missing until a session can use servers, as commands."""
    snapshot = await registry.snapshot()
    known = [snapshot.servers[server] for server in servers if server in snapshot.servers]
    steps = [typed(f"servers enable {s.server_id}", arguments) for s in known if not s.enabled]
    steps += await _giving(registry, known, arguments)
    bare = [record for record in known if not record.allowed_tools]
    for record in bare[:_SHOWN]:
        steps += _allowing(record, arguments)
    if bare[_SHOWN:]:
        steps.append(f"# likewise: {', '.join(record.server_id for record in bare[_SHOWN:])}")
    unused = [s.server_id for s in known if not tasks_with(snapshot, s.server_id)]
    return [*steps, *_using(snapshot, unused, arguments)]


async def _giving(
    registry: RegistryClient, servers: Sequence[ServerRecord], arguments: argparse.Namespace
) -> list[str]:
    """Return how servers are given the secrets that they refer to and have not been given yet."""
    wanted = [(name, s.server_id) for s in servers for name in sorted(secret_names(s))]
    if not wanted or arguments.api_url is not None:  # secrets are set where their files are
        return []
    try:
        there = {one.name: one.bound for one in await registry.secrets()}
    except ApiError:
        return []  # whoever asks may not see them
    given = {
        (name, user.id) for name, bound in there.items() for user in bound if user.state == "bound"
    }
    return [
        typed(_binding(name, server, unset=name not in there), arguments)
        for name, server in wanted
        if (name, server) not in given
    ]


def _allowing(record: ServerRecord, arguments: argparse.Namespace) -> list[str]:
    server = record.server_id
    look = typed(f"servers tools {server}", arguments)
    allow = typed(f"servers allow {server} '*'", arguments)
    return [f"{look}    # what it offers", f"{allow}    # or only some: 'get_*'"]


def _using(snapshot: Snapshot, servers: Sequence[str], arguments: argparse.Namespace) -> list[str]:
    if not servers:
        return []
    names = " ".join(servers)
    task = _usual_task(snapshot, arguments)
    if task is not None:
        return [typed(f"tasks use {shlex.quote(task)} {names}", arguments)]
    given = " ".join(f"--server {server}" for server in servers)
    return [typed(f"tasks add mine {given}", arguments)]


def _usual_task(snapshot: Snapshot, arguments: argparse.Namespace) -> str | None:
    default = default_task(arguments)
    return default if default in snapshot.tasks else next(iter(snapshot.tasks), None)


# --- denials


def lifting(snapshot: Snapshot, decision: JsonObject, task: str) -> str:
    """Return the command that would lift a denial; none where no single one would."""
    server, tool = str(decision.get("server")), str(decision.get("tool") or "*")
    reason, quoted = str(decision.get("reason")), shlex.quote(task)
    if reason in _OF_PEOPLE:
        return admitting(snapshot, decision, task)
    record = snapshot.servers.get(server)
    if record is None:
        return ""
    secret = secret_in(str(decision.get("rule")))
    if reason in ("secret_unbound", "env_missing"):
        return "" if secret is None else _binding(secret, server, unset=reason == "env_missing")
    if reason == "task_not_allowlisted" and task in snapshot.tasks:
        allowed = snapshot.tasks[task].mcp.tool_allowlist
        return (
            "" if allowed is None else _set(f"tasks set {quoted} mcp.tool_allowlist", allowed, tool)
        )
    return {
        "server_disabled": f"servers enable {server}",
        "deny_all": f"servers allow {server} {shlex.quote(tool)}",
        "not_in_allowed_tools": f"servers allow {server} {shlex.quote(tool)}",
        "platform_denied": _off_the_denylist(snapshot, server, tool),
        "task_disabled": f"tasks set {quoted} mcp.enabled=true",
        "not_allowed": f"tasks use {quoted} {server}",
        "not_default": f"tasks use {quoted} {server}",
        "task_read_only": _set(f"servers set {server} effects.read", record.effects.read, tool),
    }.get(reason, "")


def admitting(snapshot: Snapshot | None, decision: JsonObject, task: str) -> str:
    """Return the command that would lift a denial of the layer of people.

    Without the registry, which not everybody may read, only what can be told from the denial. What
    people chose for themselves is theirs to lift.
    """
    reason, rule = str(decision.get("reason")), str(decision.get("rule"))
    named = _PERSON.search(rule)
    if named is None:
        return "" if snapshot is None else _speaking(snapshot, reason, task)
    person = named[1]
    without = {
        "unknown_user": f"users add {person}",
        "user_disabled": f"users enable {person}",
        "user_read_only": f"users set {person} read_only=false",
    }
    if named[2]:
        return ""
    if reason in without:
        return without[reason]
    record = None if snapshot is None else snapshot.users.get(person)
    return "" if snapshot is None or record is None else _widening(snapshot, record, decision, task)


def _speaking(snapshot: Snapshot, reason: str, task: str) -> str:
    """Return how somebody gets a token for a task that is for groups of people."""
    groups = snapshot.tasks[task].mcp.allowed_groups if task in snapshot.tasks else None
    if reason != "group_not_allowed" or not groups:
        return ""
    ids = (id for id, one in snapshot.users.items() if one.enabled and set(groups) & {*one.groups})
    person = next(ids, None)
    quoted = shlex.quote(task)
    return "" if person is None else f"tokens create --role client --task {quoted} --user {person}"


def _widening(snapshot: Snapshot, record: UserRecord, decision: JsonObject, task: str) -> str:
    server, tool = str(decision.get("server")), str(decision.get("tool") or "*")
    field = f"users set {record.user_id}"
    match str(decision.get("reason")):
        case "group_not_allowed" if task in snapshot.tasks:
            groups = snapshot.tasks[task].mcp.allowed_groups or ()
            return _set(f"{field} groups", record.groups, groups[0]) if groups else ""
        case "user_not_enabled":
            return _set(f"{field} enabled_server_ids", record.enabled_server_ids or (), server)
        case "user_not_allowlisted":
            return _set(f"{field} tool_allowlist", record.tool_allowlist or (), tool)
        case "user_denied":
            denied = record.tool_denylist
            kept = [one for one in denied if PatternSet((one,)).first(server, tool) is None]
            return _set(f"{field} tool_denylist", kept)
        case _:
            return ""


def _binding(name: str, server: str, *, unset: bool) -> str:
    """Return the command that has a server given a secret."""
    quoted = shlex.quote(name)
    return f"secrets {f'set {quoted} --bind' if unset else f'bind {quoted} --server'} {server}"


def secret_in(problem: str) -> str | None:
    """Return the secret that a problem of a server is about."""
    found = _SECRET.search(problem)
    return None if found is None else found[1]


def _off_the_denylist(snapshot: Snapshot, server: str, tool: str) -> str:
    named = f"{server}/{tool}" in snapshot.platform.tool_denylist
    return f"servers allow {server} {shlex.quote(tool)}" if named else ""


def _set(field: str, present: Sequence[str], *more: str) -> str:
    command, _, name = field.rpartition(" ")
    value = json.dumps([*dict.fromkeys((*present, *more))])
    return f"{command} {shlex.quote(f'{name}={value}')}"


def in_files(decision: JsonObject) -> str:
    """Return what would lift a denial in files of records, in words."""
    server, tool = shown(str(decision.get("server"))), shown(str(decision.get("tool") or "*"))
    return {
        "server_disabled": f"the record of {server} says enabled = false",
        "deny_all": f'add "{tool}" to allowed_tools in the record of {server}',
        "not_in_allowed_tools": f'add "{tool}" to allowed_tools in the record of {server}',
        "task_not_allowlisted": f'add "{tool}" to tool_allowlist of the task',
        "not_allowed": f'add "{server}" to default_server_ids of the task',
        "not_default": f'add "{server}" to default_server_ids of the task',
        "task_read_only": f'if it only reads: add "{tool}" to effects.read of {server}',
        "user_not_enabled": f'add "{server}" to enabled_server_ids of the person',
        "user_not_allowlisted": f'add "{tool}" to tool_allowlist of the person',
        "user_denied": f"take what covers {tool} out of tool_denylist of the person",
        "user_read_only": "the person's record says read_only = true",
    }.get(str(decision.get("reason")), "")


def session_of(snapshot: Snapshot, task: str) -> Effective:
    """Return what a session of a task may use that asks for nothing."""
    return compose(snapshot, for_anybody(snapshot.tasks[task]))


def tasks_with(snapshot: Snapshot, server: str) -> list[str]:
    """Return the tasks whose sessions have a server, as far as the task decides."""
    return [task for task in snapshot.tasks if server in session_of(snapshot, task).requested]


def why_none(explanations: tuple[Explanation, ...], arguments: argparse.Namespace) -> list[str]:
    """Return lines: for each server the first denial, how many more there are, and the command.

    A server that gave no tools at all has a warning of its own; none at all is said in general.
    """
    denied: dict[str, list[Explanation]] = {}
    for one in explanations:
        if not one.allowed:
            denied.setdefault(one.server, []).append(one)
    if not explanations:
        return [f"the task has no servers: {typed('tasks use TASK SERVER', arguments)}"]
    return [line for found in denied.values() for line in _lines(found, arguments)]


def _lines(found: list[Explanation], arguments: argparse.Namespace) -> list[str]:
    first, more = found[0], len(found) - 1
    rest = f" (and {more} more)" if more else ""
    name = f"{first.server}/{first.tool}" if first.tool else first.server
    command = typed(f"tools explain {shlex.quote(name)}", arguments)
    return [f"{shown(str(first.decision))}{rest}", f"what would allow it: {command}"]
