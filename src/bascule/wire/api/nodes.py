"""What a node tells its registry."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.assignment import MOST_NAMED
from bascule.model.sandbox import Standing
from bascule.model.server import SERVER_ID_PATTERN, Tag
from bascule.model.status import State, Trouble
from bascule.model.task import TaskId
from bascule.model.worker import WorkerStanding

#: How many servers a report may name, and how long its texts may be.
MAX_SERVERS = 2_000
MAX_TEXT = 500
#: How long the name of a node may be: that of its token.
MAX_NAME = 128
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
    registry, and ``reason`` says why) or ``ended``: it says goodbye, and is forgotten.
    """

    node: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    state: NodeState
    revision: Annotated[int, Meta(ge=0)] = 0
    servers: Annotated[tuple[ServerWords, ...], Meta(max_length=MAX_SERVERS)] = ()
    reason: _Text | None = None


class NodeSaid(Struct, frozen=True):
    """The same where the node is known by its credential."""

    state: NodeState
    revision: Annotated[int, Meta(ge=0)] = 0
    servers: Annotated[tuple[ServerWords, ...], Meta(max_length=MAX_SERVERS)] = ()
    reason: _Text = ""


class NewAssignment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node serves from now on: tasks, and labels of their servers (tags of the records).

    Without a list, all of them; with an empty one, none.
    """

    tasks: Annotated[tuple[TaskId, ...], Meta(max_length=MOST_NAMED)] | None = None
    labels: Annotated[tuple[Tag, ...], Meta(max_length=MOST_NAMED)] | None = None


class NodeHeard(Struct, frozen=True):
    """The report was taken; ``revision`` is the registry's."""

    revision: int


class NodeStanding(Struct, frozen=True, kw_only=True):
    """How a node stands to its control plane, as its owner is told.

    A ``degraded`` node serves what it knows, a ``stale`` or ``refused`` one nothing.
    ``confirmed_at`` is when the control plane last said that this is right, ``trusted_until`` how
    long that counts if nothing more is heard (None: for ever), ``assigned`` what the node serves.
    """

    node: str
    registry: str
    store_id: str
    revision: int
    state: Literal["ok", "degraded", "stale", "refused"]
    reason: str | None
    confirmed_at: str | None
    assigned: str
    servers: tuple[ServerWords, ...]
    trusted_until: str | None = None
    #: Why the control plane does not take the rows of its ledger, if so.
    ledger: str | None = None
    #: Where several processes serve as the node: how each of them stands.
    workers: tuple[WorkerStanding, ...] = ()
