"""The agents of a process and their servers, as the agents API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.json import JsonObject
from bascule.model.status import Health

_Word = Annotated[str, Meta(min_length=1, max_length=128)]


class AgentView(Struct, frozen=True, kw_only=True):
    """One agent, as a list shows it."""

    agent_id: str
    servers: int
    connected: int
    tools: int


class AgentList(Struct, frozen=True):
    """The agents, and what keeps their file as it is now from being in force."""

    agents: Sequence[AgentView]
    problems: Sequence[str]


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
    config: JsonObject


class AgentServers(Struct, frozen=True):
    """The servers of one agent, or of all (``agent_id`` is None)."""

    agent_id: str | None
    servers: Sequence[ServerView]
    problems: Sequence[str]


class ServerChanged(Struct, frozen=True, kw_only=True):
    """What a change came to. ``server`` is None when the agent has none of this name any more.

    A change of ``defaults`` has no state of its own: each agent that inherits it has one.
    """

    agent_id: str
    server_name: str
    server: ServerView | None


class Reconnect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which server; of which agent need not be said where only one has a server of that name."""

    server_name: _Word
    agent_id: _Word | None = None
