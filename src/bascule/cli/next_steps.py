"""What to type next: after a server was added, when a list is empty.

Every line can be typed as it is. What a change comes to is told from the registry's records as
policy sees them: literal values are masked, and policy asks for none of them.
"""

from __future__ import annotations

import argparse
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
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.policy.compose import Effective, compose, for_anybody
from bascule.policy.edits import binding

_SHOWN = 3


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
        typed(binding(name, server, unset=name not in there), arguments)
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
