"""How things are going: the figures of the last minutes, what needs attention, and the nodes.

Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: What needs attention, by a word that stays the same.
AttentionCode = Literal[
    "server_down",
    "server_degraded",
    "approvals_pending",
    "proposals_waiting",
    "setup_token",
    "records_left_out",
    "registry_unwritable",
    "ledger_unwritable",
    "node_not_following",
]
#: What one button does about it.
AttentionAction = Literal[
    "test_server",
    "open_approvals",
    "open_proposals",
    "make_token",
    "rescan",
    "open_nodes",
    "look_again",
]


class CallFigures(Struct, frozen=True, kw_only=True):
    """Calls that ended: ``denials`` by policy or a person, ``errors`` otherwise.

    Latencies are estimates from a histogram, None where no call was timed.
    """

    calls: int
    errors: int
    denials: int
    p50_ms: float | None
    p95_ms: float | None


class Figures(CallFigures, frozen=True, kw_only=True):
    """One second, up to ``at``; ``running`` are the calls under way in this process at its end.

    It is None where the process is no node: of others' calls it hears when they have ended.
    """

    at: str
    running: int | None


class ToolFigures(CallFigures, frozen=True, kw_only=True):
    """One tool over the whole window; ``_other`` stands for names that have no figures."""

    tool_name: str


class ServerFigures(CallFigures, frozen=True, kw_only=True):
    """One server over the whole window, with its tools, the busiest first."""

    server_id: str
    tools: tuple[ToolFigures, ...]


class Attention(Struct, frozen=True, kw_only=True):
    """Something that somebody should look at, and the one thing that helps.

    ``subject`` is what it is about: the id of a server or node, or a word such as ``registry``.
    """

    code: AttentionCode
    subject: str
    message: str
    action: AttentionAction


class Overview(Struct, frozen=True, kw_only=True):
    """The window's seconds, the oldest first, its servers, the busiest first, and what to look at.

    Whoever may not read metrics gets no figures; of what needs attention everybody gets what they
    may read.
    """

    now: str
    window_seconds: int
    figures: tuple[Figures, ...]
    servers: tuple[ServerFigures, ...]
    attention: tuple[Attention, ...]


#: The state of a node that is assigned something and was never here.
UNSEEN = "unseen"


class NodeShown(Struct, frozen=True, kw_only=True):
    """A node as it reported last; ``servers`` counts them by state.

    ``state`` is ``ok``, ``degraded`` (it does not follow the registry), ``silent`` (no report
    for long), ``lost`` (its stream has ended) or ``unseen`` (it is assigned something and was never
    here). ``version`` is None where it is not known. ``doubled_at`` is when another process last
    wanted to be the same node and was refused. ``reason`` is why it is degraded, in its own words.
    ``tasks`` and ``labels`` are what it is assigned; None is all.
    """

    name: str
    state: str
    revision: int
    version: str | None
    last_seen: str | None
    servers: dict[str, int]
    doubled_at: str | None = None
    reason: str | None = None
    tasks: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None


class NodeDetail(Struct, frozen=True, kw_only=True):
    """A node, with the tasks and servers that it serves by its assignment; None is all.

    ``warnings`` say which names of the assignment lead to nothing.
    """

    node: NodeShown
    assigned_by: str | None
    assigned_at: str | None
    serves_tasks: tuple[str, ...] | None
    serves_servers: tuple[str, ...] | None
    warnings: tuple[str, ...] = ()


class NodeList(Struct, frozen=True):
    """All nodes that reported, or are assigned something, by name."""

    nodes: tuple[NodeShown, ...]
