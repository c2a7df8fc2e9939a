"""What the agents API needs of whoever holds the agents.

Below: msgspec. Above: ``api.py`` uses it; ``bascule.manager.AgentFleet`` provides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from bascule.model.status import Health

#: Who changes something: an administrator alone gives credentials new targets.
Writer = Literal["administrator", "operator"]


class AgentView(Struct, frozen=True, kw_only=True):
    """One agent, as a list shows it."""

    agent_id: str
    servers: int
    connected: int
    tools: int


class ServerView(Struct, frozen=True, kw_only=True):
    """One server of an agent: how it stands, where it comes from, and its entry, masked.

    ``state`` is the connection's; ``phase`` the same in four words: connecting, connected, failed
    (``last_error`` says why) and disconnected; ``health`` in three: Connected, Degraded, Down.
    ``origin`` is ``defaults``, ``agent``, or
    ``override`` for an agent's own in the place of a default.
    """

    agent_id: str
    name: str
    transport: str | None
    enabled: bool
    origin: str
    state: str
    phase: str
    health: Health
    last_error: str | None
    last_connected_at: float | None
    next_attempt_at: float | None
    failures: int
    tool_count: int
    tools: Sequence[str]
    config: Mapping[str, Any]


class Changed(Struct, frozen=True, kw_only=True):
    """What a change came to. ``server`` is None when the agent has none of this name any more.

    A change of ``defaults`` has no state of its own: each agent that inherits it has one.
    """

    agent_id: str
    server_name: str
    server: ServerView | None


class Agents(Protocol):
    """The agents of a process. An id or a name that does not exist raises ``not_found``."""

    def agents(self) -> Sequence[AgentView]:
        """List the agents."""
        ...

    def servers(self, agent_id: str) -> Sequence[ServerView]:
        """List an agent's servers."""
        ...

    def problems(self) -> Sequence[str]:
        """Say what keeps the newest configuration from being in force; nothing if it is."""
        ...

    async def reconnect(self, agent_id: str, server_name: str) -> ServerView:
        """Tear down and connect once; raise what goes wrong."""
        ...

    async def create(self, agent_id: str, entry: Mapping[str, Any], by: Writer) -> Changed:
        """Add a server; raise ``already_exists`` when the agent has one of its name."""
        ...

    async def replace(
        self, agent_id: str, name: str, entry: Mapping[str, Any], by: Writer
    ) -> Changed:
        """Put an entry in the place of a server's; an inherited one is overridden."""
        ...

    async def merge(
        self, agent_id: str, name: str, patch: Mapping[str, Any], by: Writer
    ) -> Changed:
        """Change some fields; null takes one away. An inherited server is overridden."""
        ...

    async def remove(self, agent_id: str, name: str) -> Changed:
        """Take an agent's own server away; raise ``wrong_state`` for an inherited one."""
        ...
