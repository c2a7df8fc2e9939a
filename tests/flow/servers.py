"""Records of scripted servers, and the few steps that every test of this folder takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bascule.model.outcome import Outcome
from bascule.model.server import ServerRecord
from bascule.node.bridge.session import Session
from bascule.node.settings import NodeSettings
from bascule.server import Server
from bascule.testing.server import ScriptedServer
from tests.waits import until

#: Lists and connections that fail do so soon; a call has time, since the machine may be busy.
BUDGETS = {"connect_timeout_ms": 5000, "list_timeout_ms": 1000, "tool_timeout_ms": 8000}
#: Long enough for anything that does answer to do so, short enough to wait for what does not.
SHORT = 0.3
#: A server that dies a hundred times a minute is what these tests are about.
PATIENT = NodeSettings(
    losses_per_minute=100_000, park_after=100_000, backoff_seconds=0.01, list_failure_seconds=0.05
)


def record(server: ScriptedServer, server_id: str = "bad", **fields: Any) -> ServerRecord:
    """Return the record of a scripted server; ``budgets`` may lower or raise the usual ones."""
    command, args = server.command
    budgets = {**BUDGETS, **fields.pop("budgets", {})}
    return Server.stdio(server_id, command, *args, budgets=budgets, **fields)


def any_fault(**more: Any) -> ScriptedServer:
    """Return a server with a good tool, and one that does what its argument ``do`` says."""
    return ScriptedServer(behaviours={"echo": "echo", "fault": "asked"}, **more)


async def misbehave(
    session: Session,
    step: Mapping[str, Any] | str,
    *,
    timeout: float | None = SHORT,  # noqa: ASYNC109 - passed on as it is
    **options: Any,
) -> Outcome:
    """Ask for a fault; the outcome must be there well before the bound, whatever happens."""
    arguments = {"do": step, "text": "hello"}
    async with asyncio.timeout(10):
        return await session.call("mcp__bad__fault", arguments, timeout=timeout, **options)


async def works(session: Session, server_id: str = "bad") -> None:
    """Assert that the very next call is answered."""
    async with asyncio.timeout(10):
        outcome = await session.call(f"mcp__{server_id}__echo", {"text": "still here"})
    assert outcome.ok, outcome.error
    assert outcome.text == "still here"


async def works_soon(session: Session, server_id: str = "bad") -> None:
    """Assert that calls are answered again after some that were refused with a code."""
    async with asyncio.timeout(10):
        while True:
            name, arguments = f"mcp__{server_id}__echo", {"text": "again"}
            outcome = await session.call(name, arguments, timeout=SHORT)
            if outcome.error is None:
                assert outcome.text == "again"
                return
            assert outcome.error.code in {"mcp_timeout", "mcp_outcome_unknown", "mcp_unavailable"}


async def longer_list(session: Session, than: int) -> None:
    """Wait until more tools are listed than these; what the server announces comes in its time."""

    async def longer() -> bool:
        return len(await session.tools()) > than

    await until(longer)


def code_of(outcome: Outcome) -> str:
    """Return the code of a failure, or ``ok``."""
    return "ok" if outcome.error is None else outcome.error.code


def lines_of(path: Path) -> list[str]:
    """Return the lines a server has written to a file so far."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
