"""How an agent's servers stand, for people, prompts and the API."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bascule.manager.config import AgentTransport
from bascule.manager.events import ToolCompleted, ToolStarted
from bascule.model.status import PHASES, Health, Phase, State, health_of


class ServerStatus(Struct, frozen=True, kw_only=True):
    """One server of an agent. ``tools`` are its own names, as they were last listed."""

    name: str
    transport: AgentTransport | None
    enabled: bool
    state: State
    last_error: str | None = None
    last_connected_at: float | None = None
    next_attempt_at: float | None = None
    failures: int = 0
    tools: tuple[str, ...] = ()

    @property
    def phase(self) -> Phase:
        """Return the state in the seed's words; ``failed`` has its reason in ``last_error``."""
        return PHASES[self.state]

    @property
    def health(self) -> Health:
        """Return the state as Connected, Degraded or Down."""
        return health_of(self.state)

    @property
    def connected(self) -> bool:
        """Say whether its tools can be used."""
        return self.phase == "connected"


def status_block(
    statuses: Iterable[ServerStatus],
    *,
    running: Iterable[ToolStarted] = (),
    last: Iterable[ToolCompleted] = (),
    now: float = 0.0,
) -> str:
    """Return lines for a prompt: the connected servers, calls that run, and the last that ended.

    A line with nothing to say is left out.
    """
    there = [f"{one.name} ({_tools(len(one.tools))})" for one in statuses if one.connected]
    lines = {
        "MCP servers connected": there,
        "MCP tool calls running": [
            f"{call.name} ({_seconds((now - call.at) * 1000)})" for call in running
        ],
        "MCP tool calls ended last": [
            f"{call.name} ({'ok' if call.ok else call.code}, {_seconds(call.duration_ms)})"
            for call in last
        ],
    }
    return "\n".join(f"{title}: {', '.join(said)}" for title, said in lines.items() if said)


def _seconds(milliseconds: float) -> str:
    return f"{max(0.0, milliseconds) / 1000:.1f} s"


def _tools(count: int) -> str:
    return "1 tool" if count == 1 else f"{count} tools"
