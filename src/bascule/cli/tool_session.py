"""The session of a ``tools`` command: over a directory of records, or at a running process.

With ``--registry-dir`` a bridge is opened here. Without it the session is one of a task of the
process that serves, with a client's token that is made for the command and ends with it. Below:
``running.py`` and ``endpoint.py``. Above: ``tools``.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bascule.cli.command import Plan, open_session, read_plan, read_session
from bascule.cli.endpoint import NotServing, reach, registry_of
from bascule.cli.next_steps import in_files, ways_out
from bascule.cli.task_choice import chosen_task
from bascule.errors import BasculeError, SessionRefused
from bascule.model.session import SessionRequest
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.node.connected_bridge import ConnectedSession
from bascule.node.contract import SessionOptions
from bascule.node.ports import Approver
from bascule.policy.explain import Explanation


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
        return read_plan(arguments)
    if arguments.environment is not None or arguments.allow_egress:
        arguments.usage("--environment and --allow-egress go with --registry-dir")
    if vars(arguments).get("yes"):
        arguments.usage("--yes goes with --registry-dir: a process asks its own approvers")
    request, warnings = read_session(arguments.session)
    if arguments.server:
        if request.server_ids is not None:
            arguments.usage("--server and the session file's mcp.server_ids both choose: give one")
        request = replace(request, server_ids=tuple(dict.fromkeys(arguments.server)))
    return Elsewhere(arguments, request, tuple(warnings))


@asynccontextmanager
async def open_source(
    source: Plan | Elsewhere, approver: Approver | None = None
) -> AsyncGenerator[Session | ConnectedSession]:
    """Open the session; what it needs ends with the block."""
    opened = open_session(source, approver) if isinstance(source, Plan) else _open_elsewhere(source)
    async with opened as session:
        yield session


async def explanation(session: Session | ConnectedSession, name: str) -> Explanation:
    """Explain a tool or a server, whoever has to be asked."""
    return await session.explanation(name)


async def way_out(source: Plan | Elsewhere, decision: Mapping[str, Any]) -> str:
    """Return what would lift a denial: a command for the process, or a word on the files."""
    if isinstance(source, Plan):
        return in_files(decision)
    arguments = source.arguments
    try:
        task = await chosen_task(arguments)
        async with registry_of(arguments) as registry:
            found = await ways_out(registry, decision, task, arguments)
    except BasculeError:
        return ""  # whoever asks may not read the registry, and is told of the denial all the same
    return "".join(f"what would allow it: {command}" for command in found)


@asynccontextmanager
async def _open_elsewhere(source: Elsewhere) -> AsyncGenerator[ConnectedSession]:
    """Open a session of a task at the process that serves."""
    arguments = source.arguments
    try:
        task = await chosen_task(arguments)
        async with reach(arguments, "client", task) as found:
            bridge = Bridge.connect(
                found.url, token=found.token, tls_ca=found.tls_ca, insecure=found.insecure
            )
            async with bridge, bridge.session(**_options(source.request, task)) as session:
                yield session
    except NotServing as error:
        raise NotServing(f"{error}; or give --registry-dir") from error
    except SessionRefused as error:
        raise await _with_way_out(source, error) from error


async def _with_way_out(source: Elsewhere, error: SessionRefused) -> SessionRefused:
    """Return a refusal that says what would lift it, where that can be told."""
    hint = await way_out(source, {"server": error.server, "reason": error.reason})
    words = f"{error}; {hint}" if hint else str(error)
    return SessionRefused(error.reason, words, server=error.server)


def _options(request: SessionRequest, task: str | None) -> SessionOptions:
    # A session that is switched off is one with no server at all.
    server_ids = () if request.enabled is False else request.server_ids
    return {
        "server_ids": server_ids,
        "task": task,
        "tool_allowlist": request.tool_allowlist,
        "tool_denylist": request.tool_denylist,
        "read_only": request.read_only,
        "max_tool_output_bytes": request.max_tool_output_bytes,
    }
