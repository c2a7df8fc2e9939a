"""What a node tells its registry."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.sandbox import Standing
from bascule.model.server import SERVER_ID_PATTERN
from bascule.model.status import State, Trouble

#: How many servers a report may name, and how long its texts may be.
MAX_SERVERS = 2_000
MAX_TEXT = 500
NodeState = Literal["ok", "degraded", "ended"]
_Text = Annotated[str, Meta(max_length=MAX_TEXT)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Milliseconds = Annotated[float, Meta(ge=0)]


class ServerWords(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server stands at the node (``bascule.model.status.ServerStatus``)."""

    server_id: Annotated[str, Meta(pattern=SERVER_ID_PATTERN)]
    state: State
    trouble: Trouble | None = None
    last_error: _Text | None = None
    tool_count: _Count | None = None
    latency_ms: _Milliseconds | None = None
    average_latency_ms: _Milliseconds | None = None
    reconnects: _Count = 0
    starting: _Text | None = None
    sandbox: Standing | None = None


class NodeWords(Struct, frozen=True, forbid_unknown_fields=True):
    """All that a node says at one time, in place of what it said before.

    ``node`` is the name of its token. ``state`` is ``ok``, ``degraded`` (it cannot follow the
    registry) or ``ended``: it says goodbye, and is forgotten.
    """

    node: Annotated[str, Meta(min_length=1, max_length=128)]
    state: NodeState
    revision: Annotated[int, Meta(ge=0)] = 0
    servers: Annotated[tuple[ServerWords, ...], Meta(max_length=MAX_SERVERS)] = ()


class NodeSaid(Struct, frozen=True):
    """The same where the node is known by its credential."""

    state: NodeState
    revision: Annotated[int, Meta(ge=0)] = 0
    servers: Annotated[tuple[ServerWords, ...], Meta(max_length=MAX_SERVERS)] = ()


class NodeHeard(Struct, frozen=True):
    """The report was taken; ``revision`` is the registry's."""

    revision: int


class NodeStanding(Struct, frozen=True, kw_only=True):
    """How a node stands to its control plane, as its owner is told.

    A ``degraded`` node serves what it knows, a ``stale`` one nothing. ``confirmed_at`` is when the
    control plane last said that this is right.
    """

    node: str
    registry: str
    store_id: str
    revision: int
    state: Literal["ok", "degraded", "stale"]
    reason: str | None
    confirmed_at: str | None
    servers: tuple[ServerWords, ...]
