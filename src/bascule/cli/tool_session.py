"""The session of a ``tools`` command: over a directory of records, or at a running process.

With ``--registry-dir`` a bridge is opened here. Without it the session is one of a task of the
process that serves, with a client's token that is made for the command and ends with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from bascule.cli.command import Plan, read_plan, read_request
from bascule.cli.command_line import typed
from bascule.cli.endpoint import TOKEN_SECONDS, NotServing, reach, registry_of
from bascule.cli.task_choice import chosen_task, has_token, likely_task
from bascule.cli.tool_approval import wait_of
from bascule.errors import BasculeError, SessionRefused
from bascule.model.json import JsonObject
from bascule.model.session import SessionRequest
from bascule.node.assembly import Bridge
from bascule.node.bridge.opening import Opening
from bascule.node.contract import ToolSession
from bascule.node.ports import Approver
from bascule.node.remote_session import RemoteSession
from bascule.outbound.rules import NodeRules
from bascule.policy.edits import admitting, in_words, lifting

Work: TypeAlias = Callable[[ToolSession], Awaitable[int]]
#: Does the work at a process, in a task.
Attempt: TypeAlias = Callable[[str | None], Awaitable[int]]


class Elsewhere(Struct, frozen=True):
    """A session to be opened at a running process: for which task, and how narrow."""

    arguments: argparse.Namespace
    request: SessionRequest
    warnings: tuple[str, ...]


def read_source(arguments: argparse.Namespace) -> Plan | Elsewhere:
    """Read what a command line asks for; wrong usage ends the command."""
    if arguments.registry_dir is not None:
        if arguments.api_url is not None or arguments.token is not None:
            arguments.usage("--registry-dir is for files, --url and --token are for a process")
        given = vars(arguments)
        if given.get("wait") is not None or given.get("no_wait"):
            arguments.usage("--wait and --no-wait are for a process: over files you approve it")
        return read_plan(arguments)
    if arguments.environment is not None or arguments.allow_egress:
        arguments.usage("--environment and --allow-egress go with --registry-dir")
    if vars(arguments).get("yes"):
        arguments.usage("--yes goes with --registry-dir: a process asks its own approvers")
    return Elsewhere(arguments, *read_request(arguments))


async def in_session(source: Plan | Elsewhere, work: Work, approver: Approver | None = None) -> int:
    """Open the session and do some work in it; what it needs ends with that."""
    if isinstance(source, Plan):
        return await _here(source, work, approver)
    return await at_process(source, lambda task: _elsewhere(source, task, work))


async def at_process(source: Elsewhere, attempt: Attempt) -> int:
    """Do some work in the task that was named or kept; a refusal says what would lift it."""
    try:
        return await _in_likely_task(source, attempt)
    except NotServing as error:
        raise NotServing(f"{error}; or give --registry-dir") from error
    except SessionRefused as error:
        raise await _with_way_out(source, error) from error


def bridge_over(plan: Plan, approver: Approver | None) -> Bridge:
    """Return a bridge over files, to be opened."""
    return Bridge.open(
        plan.snapshot, approver=approver, environment=plan.environment, rules=rules_of(plan)
    )


def rules_of(plan: Plan) -> NodeRules:
    """Return what the records of a plan may do on this machine."""
    return NodeRules(egress=plan.egress)


async def _here(plan: Plan, work: Work, approver: Approver | None) -> int:
    """Do the work in a session of a bridge over files."""
    bridge = bridge_over(plan, approver)
    opening = Opening(request=plan.request, task=plan.task)
    async with bridge, bridge.open_session(opening) as session:
        return await work(session)


async def _in_likely_task(source: Elsewhere, attempt: Attempt) -> int:
    """Do the work in the task that was named or kept; ask for the tasks only if it is not there."""
    try:
        return await attempt(await likely_task(source.arguments))
    except SessionRefused as error:
        if error.reason != "unknown_task" or has_token(source.arguments):
            raise
    return await attempt(await chosen_task(source.arguments))


async def _elsewhere(source: Elsewhere, task: str | None, work: Work) -> int:
    """Do the work in a session of a task at the process that serves."""
    opening = Opening(request=source.request, task=task)
    given = vars(source.arguments)
    longer = wait_of(source.arguments) if "wait" in given else 0.0
    seconds = TOKEN_SECONDS + longer
    async with reach(source.arguments, "client", task, seconds=seconds) as found:
        if found.made:  # a client's token: nobody has to be asked what it is for
            async with found.api() as api:
                return await work(RemoteSession(api, opening))
        bridge = Bridge.connect(
            found.url, token=found.token, tls_ca=found.tls_ca, insecure=found.insecure
        )
        async with bridge:
            return await work(bridge.open_session(opening))


async def way_out(source: Plan | Elsewhere, decision: JsonObject) -> str:
    """Return what would lift a denial: a command for the process, or a word on the files."""
    if isinstance(source, Plan):
        return in_words(decision)
    arguments = source.arguments
    try:
        task = await chosen_task(arguments)
        async with registry_of(arguments) as registry:
            words = lifting(await registry.snapshot(), decision, task or "")
    except BasculeError:  # whoever asks may not read the registry
        words = admitting(None, decision, "")
        return f"an administrator lifts it: {typed(words, arguments)}" if words else ""
    if words.startswith("secrets ") and arguments.api_url is not None:
        return f"what would allow it, on the machine that serves: {typed(words)}"
    return f"what would allow it: {typed(words, arguments)}" if words else ""


async def _with_way_out(source: Elsewhere, error: SessionRefused) -> SessionRefused:
    """Return a refusal that says what would lift it, where that can be told."""
    told: JsonObject = {"server": error.server, "reason": error.reason, "rule": str(error)}
    hint = await way_out(source, told)
    words = f"{error}; {hint}" if hint else str(error)
    return SessionRefused(error.reason, words, server=error.server)
