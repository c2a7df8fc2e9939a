"""Counting what crosses the bridge, and showing it in Prometheus' text form when asked.

Counting is on the path of every call: plain integers in one event loop, no locks, no library.
Prometheus' client is imported when somebody looks. Names, labels and bounds: docs/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from bascule.model.approval import ApprovalState
from bascule.model.code import ErrorCode
from bascule.model.decision import Reason

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

InjectionStatus = Literal["success", "failed", "denied"]

MAX_SERIES = 2000
#: Tools whose names nobody but a caller has vouched for so far.
MAX_GUESSED = 200
OTHER = "_other"  # no server id begins with an underscore
OWN = "_own"
CODES = frozenset(get_args(ErrorCode))
REASONS = frozenset(get_args(Reason)) - {"allowed"}
#: Why a session may be refused, besides the reasons of decisions.
REFUSALS = REASONS | {
    "task_required",
    "unknown_task",
    "too_many_sessions",
    "role",
    "task",
    "inputs",
}

LATENCY_BOUNDS: tuple[float, ...] = (
    *(0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
)
SIZE_BOUNDS: tuple[int, ...] = (
    *(256, 1_024, 4_096, 16_384, 65_536, 262_144),
    *(1_048_576, 4_194_304, 16_777_216, 104_857_600),
)
#: Turns and calls of one chat request.
CONVERSATION_BOUNDS: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
#: The budgets that may end a conversation.
BUDGETS = frozenset(
    {"max_iterations", "max_total_tool_calls", "max_output_bytes", "max_seconds", "max_repeats"}
)


class ToolStats:
    """The figures of one tool. Ask for it once and keep it."""

    __slots__ = (
        "cut", "errors", "latency", "milliseconds", "misfits", "output_bytes", "sizes",
        "unresolved",
    )  # fmt: skip

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.unresolved = 0
        #: Results that were cut, and results that did not fit their output schema.
        self.cut = self.misfits = 0
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self.milliseconds = 0.0
        self.sizes = [0] * (len(SIZE_BOUNDS) + 1)
        self.output_bytes = 0

    def observe(self, code: str | None, milliseconds: float, output_bytes: int) -> None:
        """Count a call that ended: its error code, or None when it succeeded."""
        self.latency[bisect_left(LATENCY_BOUNDS, milliseconds)] += 1
        self.milliseconds += milliseconds
        self.sizes[bisect_left(SIZE_BOUNDS, output_bytes)] += 1
        self.output_bytes += output_bytes
        if code is not None:
            _count(self.errors, code if code in CODES else "other")

    def refuse(self, code: str, count: int = 1) -> None:
        """Count calls that never got to their tool: they took no time there and said nothing."""
        self.unresolved += count
        _count(self.errors, code if code in CODES else "other", count)

    @property
    def calls(self) -> int:
        """How many calls ended, well or badly."""
        return sum(self.latency) + self.unresolved


class ServerStats:
    """The figures of one server as a whole."""

    __slots__ = ("connects", "denials", "injections", "latency", "milliseconds", "throttled")

    def __init__(self) -> None:
        self.connects = 0
        self.throttled = 0.0
        self.injections: dict[str, int] = {}
        self.denials: dict[str, int] = {}
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self.milliseconds = 0.0


class ChatStats:
    """The figures of all chat requests."""

    __slots__ = ("budget_hits", "calls", "iterations", "total_calls", "total_iterations")

    def __init__(self) -> None:
        self.iterations = [0] * (len(CONVERSATION_BOUNDS) + 1)
        self.total_iterations = 0
        self.calls = [0] * (len(CONVERSATION_BOUNDS) + 1)
        self.total_calls = 0
        self.budget_hits: dict[str, int] = {}

    def observe(self, *, iterations: int, calls: int, budget: str | None) -> None:
        """Count a chat request that ended, and the budget that ended it, if one did."""
        self.iterations[bisect_left(CONVERSATION_BOUNDS, iterations)] += 1
        self.total_iterations += iterations
        self.calls[bisect_left(CONVERSATION_BOUNDS, calls)] += 1
        self.total_calls += calls
        if budget is not None:
            _count(self.budget_hits, budget if budget in BUDGETS else "other")


def _count(counts: dict[str, int], key: str, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count


class LedgerState(Protocol):
    """How a ledger is doing: its last row, what waits for it, and why it cannot be written."""

    @property
    def number(self) -> int: ...

    @property
    def backlog(self) -> int: ...

    @property
    def trouble(self) -> str | None: ...


class GatewayState(Protocol):
    """What is under way at the gateway."""

    @property
    def open_streams(self) -> int: ...

    @property
    def open_calls(self) -> int: ...


class Metrics:
    """Everything one node counts. For use from its event loop."""

    def __init__(self, *, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._tools: dict[tuple[str, str], ToolStats] = {}
        self._guessed: dict[tuple[str, str], ToolStats] = {}
        self._own: dict[tuple[str, str], ToolStats] = {}
        self._refusals: dict[str, int] = {}
        self._turned_away: dict[str, int] = {}
        self._approvals: dict[str, int] = {}
        #: The ledger whose state is shown, if there is one.
        self.ledger: LedgerState | None = None
        #: Why the process is degraded, by code; looked at when figures are asked for.
        self.degraded: tuple[str, ...] = ()
        #: The revision that the process serves, looked at likewise.
        self.revision: int | None = None
        #: Counts a control plane's nodes by state, and what it counted when figures were asked for.
        self.count_nodes: Callable[[], Mapping[str, int]] = dict
        self.nodes: Mapping[str, int] = {}
        #: The gateway whose state is shown, if there is one.
        self.gateway: GatewayState | None = None
        self._servers: dict[str, ServerStats] = {}
        self._other_tool = ToolStats()
        self._other_server = ServerStats()
        self._chat = ChatStats()

    def tool(self, server_id: str, tool: str) -> ToolStats:
        """Return the figures of a tool; past the bound, those that all further tools share."""
        key = server_id, tool
        found = self._tools.get(key)
        if found is None:
            if len(self._tools) >= self._max_series:
                return self._other_tool
            found = self._tools[key] = self._guessed.pop(key, None) or ToolStats()
        return found

    def own(self, tool: str) -> ToolStats:
        """Return the figures of a caller's own tool, a name that nobody else vouches for."""
        room = len(self._own) < MAX_GUESSED or (OWN, tool) in self._own
        return self._own.setdefault((OWN, tool if room else OTHER), ToolStats())

    def tools(self) -> Iterator[tuple[tuple[str, str], ToolStats]]:
        """Yield the figures of every tool, by its server and its name."""
        yield from self._guessed.items()
        yield from self._own.items()
        yield from self._tools.items()
        yield (OTHER, OTHER), self._other_tool

    def refused(self, server_id: str | None, tool: str | None, code: str, count: int = 1) -> None:
        """Count a call that never got to its tool. None stands for a name that nobody vouches for.

        A tool that no session was shown yet may be one or not: only so many of those have figures
        of their own.
        """
        key = server_id or OTHER, tool or OTHER
        found = self._tools.get(key) or self._guessed.get(key)
        if found is None and OTHER not in key and len(self._guessed) < MAX_GUESSED:
            found = self._guessed[key] = ToolStats()
        (found or self._unnamed(key[0])).refuse(code, count)

    def turned_away(self, code: str) -> None:
        """Count a request that got no further than the guard; anybody can cause one."""
        known = code in self._turned_away or len(self._turned_away) < MAX_GUESSED
        _count(self._turned_away, code if known else "other")

    def approval_moved(self, state: ApprovalState) -> None:
        """Count a step of an approval."""
        _count(self._approvals, state)

    def session_refused(self, reason: str) -> None:
        """Count a session that was refused."""
        _count(self._refusals, reason if reason in REFUSALS else "other")

    def connected(self, server_id: str) -> None:
        """Count a connection that was made."""
        self._server(server_id).connects += 1

    def listed(self, server_id: str, milliseconds: float) -> None:
        """Count how long a server took to list its tools."""
        stats = self._server(server_id)
        stats.latency[bisect_left(LATENCY_BOUNDS, milliseconds)] += 1
        stats.milliseconds += milliseconds

    def throttled(self, server_id: str, seconds: float) -> None:
        """Count for how long a server was not read because it floods."""
        self._server(server_id).throttled += seconds

    def injected(self, server_id: str, status: InjectionStatus) -> None:
        """Count what came of offering a server's tools to a session."""
        _count(self._server(server_id).injections, status)

    def denied(self, server_id: str, reason: str) -> None:
        """Count a denial. An unknown server's name is the caller's invention: it is no label."""
        stats = self._server(OTHER if reason == "unknown_server" else server_id or OTHER)
        _count(stats.denials, reason if reason in REASONS else "other")

    def conversed(self, *, iterations: int, calls: int, budget: str | None = None) -> None:
        """Count a chat request that ended: its turns, its calls, the budget that stopped it."""
        self._chat.observe(iterations=iterations, calls=calls, budget=budget)

    def render(self) -> bytes:
        """Return all figures in Prometheus' text form.

        With thousands of series this takes a while; it may be called from another thread.
        """
        from prometheus_client import generate_latest  # noqa: PLC0415 -- heavy, and rarely needed

        return generate_latest(self.collector())

    def collector(self) -> Collector:
        """Return a collector for a registry of Prometheus' client."""
        from prometheus_client.registry import Collector  # noqa: PLC0415 -- as above

        families = self._families

        class BasculeCollector(Collector):
            def collect(self) -> Iterator[Metric]:
                return families()

        return BasculeCollector()

    def _server(self, server_id: str) -> ServerStats:
        found = self._servers.get(server_id)
        if found is None:
            if server_id == OTHER or len(self._servers) >= self._max_series:
                return self._other_server
            found = self._servers[server_id] = ServerStats()
        return found

    def _unnamed(self, server_id: str) -> ToolStats:
        """Return the figures that all further names of a server's tools share."""
        return self._other_tool if server_id == OTHER else self.tool(server_id, OTHER)

    def _families(self) -> Iterator[Metric]:
        tools = {key: stats for key, stats in self.tools() if stats.calls}
        yield from _tool_families(tools)
        yield from _server_families({**self._servers, OTHER: self._other_server})
        yield _counter(
            "mcp_session_refused_total",
            "Sessions that were refused, by reason.",
            ("reason",),
            {(reason,): n for reason, n in tuple(self._refusals.items())},
        )
        yield _counter(
            "mcp_request_refused_total",
            "HTTP requests that were turned away before any session, by error code.",
            ("code",),
            {(code,): n for code, n in tuple(self._turned_away.items())},
        )
        yield _counter(
            "mcp_approval_steps_total",
            "Steps of approvals, by the state that they led to.",
            ("state",),
            {(state,): n for state, n in tuple(self._approvals.items())},
        )
        text = "1 for each reason why the process is degraded."
        yield _gauge("mcp_degraded", text, "reason", dict.fromkeys(self.degraded, 1))
        yield _gauge("mcp_nodes", "Nodes that the process knows, by state.", "state", self.nodes)
        yield from () if self.revision is None else [_revision_family(self.revision)]
        yield from _chat_families(self._chat)
        yield from () if self.ledger is None else _ledger_families(self.ledger)
        yield from () if self.gateway is None else _gateway_families(self.gateway)


def _tool_families(tools: Mapping[tuple[str, str], ToolStats]) -> Iterator[Metric]:
    labels = ("server_id", "tool")
    sent = {key: stats for key, stats in tools.items() if stats.calls > stats.unresolved}
    yield _counter(
        "mcp_tool_call_total",
        "Tool calls that ended.",
        labels,
        {key: stats.calls for key, stats in tools.items()},
    )
    yield _counter(
        "mcp_tool_call_error_total",
        "Tool calls that failed.",
        (*labels, "code"),
        {
            (*key, code): n
            for key, stats in tools.items()
            for code, n in tuple(stats.errors.items())
        },
    )
    yield _counter(
        "mcp_tool_output_cut_total",
        "Tool results that were cut to their cap.",
        labels,
        {key: stats.cut for key, stats in tools.items() if stats.cut},
    )
    yield _counter(
        "mcp_tool_output_invalid_total",
        "Tool results that did not fit the tool's output schema.",
        labels,
        {key: stats.misfits for key, stats in tools.items() if stats.misfits},
    )
    yield _histogram(
        "mcp_tool_call_latency_ms",
        "Duration of tool calls in milliseconds.",
        labels,
        {key: (LATENCY_BOUNDS, s.latency, s.milliseconds) for key, s in sent.items()},
    )
    yield _histogram(
        "mcp_tool_call_output_bytes",
        "Size of tool results in bytes.",
        labels,
        {key: (SIZE_BOUNDS, s.sizes, s.output_bytes) for key, s in sent.items()},
    )


def _server_families(servers: Mapping[str, ServerStats]) -> Iterator[Metric]:
    labels = ("server_id",)
    yield _counter(
        "mcp_server_connect_total",
        "Connections made to servers.",
        labels,
        {(server,): stats.connects for server, stats in servers.items() if stats.connects},
    )
    yield _counter(
        "mcp_server_throttled_seconds_total",
        "Time for which servers were not read because they flood, in seconds.",
        labels,
        {(server,): stats.throttled for server, stats in servers.items() if stats.throttled},
    )
    yield _counter(
        "mcp_injection_total",
        "Tool lists offered to sessions, by what came of it.",
        (*labels, "status"),
        _each({server: stats.injections for server, stats in servers.items()}),
    )
    yield _histogram(
        "mcp_list_tools_latency_ms",
        "Time servers took to list their tools, in milliseconds.",
        labels,
        {
            (server,): (LATENCY_BOUNDS, stats.latency, stats.milliseconds)
            for server, stats in servers.items()
            if any(stats.latency)
        },
    )
    yield _counter(
        "mcp_denied_reason",
        "Servers and tools denied, by reason. Only ever rises.",
        (*labels, "reason"),
        _each({server: stats.denials for server, stats in servers.items()}),
    )


def _chat_families(chat: ChatStats) -> Iterator[Metric]:
    seen = any(chat.iterations)
    yield _histogram(
        "mcp_chat_iterations",
        "Turns of chat requests with tools.",
        (),
        {(): (CONVERSATION_BOUNDS, chat.iterations, chat.total_iterations)} if seen else {},
    )
    yield _histogram(
        "mcp_chat_tool_calls",
        "Tool calls of chat requests.",
        (),
        {(): (CONVERSATION_BOUNDS, chat.calls, chat.total_calls)} if seen else {},
    )
    yield _counter(
        "mcp_budget_hit_total",
        "Chat requests that a budget ended.",
        ("budget",),
        {(budget,): n for budget, n in tuple(chat.budget_hits.items())},
    )


def _each(counts: Mapping[str, dict[str, int]]) -> dict[tuple[str, ...], int]:
    return {(server, key): n for server, own in counts.items() for key, n in tuple(own.items())}


def _counter(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> Metric:
    """A count; a name that does not end in ``_total``, as the text form demands, has no type."""
    from prometheus_client import core  # noqa: PLC0415 -- as above

    counts = name.endswith("_total")
    kind = core.CounterMetricFamily if counts else core.UnknownMetricFamily
    family = kind(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 -- as above

    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _revision_family(revision: int) -> Metric:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 -- as above

    text = "The registry's revision that the process serves."
    return GaugeMetricFamily("mcp_registry_revision", text, value=revision)


def _ledger_families(ledger: LedgerState) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 -- as above

    backlog = "Bytes of the journal that the ledger's database has not taken in."
    down = "Whether calls are refused because the ledger cannot be written."
    yield GaugeMetricFamily("mcp_ledger_rows", "The ledger's last row.", value=ledger.number)
    yield GaugeMetricFamily("mcp_ledger_backlog_bytes", backlog, value=ledger.backlog)
    yield GaugeMetricFamily("mcp_ledger_down", down, value=ledger.trouble is not None)


def _gateway_families(gateway: GatewayState) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 -- as above

    streams, calls = "Streams that MCP clients have open.", "Calls of MCP clients under way."
    yield GaugeMetricFamily("mcp_gateway_streams", streams, value=gateway.open_streams)
    yield GaugeMetricFamily("mcp_gateway_calls", calls, value=gateway.open_calls)


def _histogram(
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Mapping[tuple[str, ...], tuple[tuple[float, ...], list[int], float]],
) -> Metric:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 -- as above

    family = HistogramMetricFamily(name, text, labels=labels)
    for key, (bounds, counts, total) in values.items():
        edges = [*(str(float(bound)) for bound in bounds), "+Inf"]
        family.add_metric(key, list(zip(edges, accumulate(counts), strict=True)), total)
    return family
