"""The last two minutes in figures: what the metrics counted in each second, by server and tool.

Calls do no work for it: once a second their counts are compared with what they were, and what
differs is kept.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypedDict, TypeVar

from bascule.audit.metrics import LATENCY_BOUNDS, OTHER, Metrics, ToolStats
from bascule.clock import Clock, rfc3339
from bascule.model.code import CODES
from bascule.wire.api.overview import CallFigures, Figures, ServerFigures, ToolFigures

logger = logging.getLogger("bascule.figures")

WINDOW_SECONDS = 120
#: Of more tools than this that were called in one second, the others share their figures.
MOST_TOOLS = 200
_DENIED = tuple(code for code, facts in CODES.items() if facts.status == "denied")

#: A server and one of its tools.
Tool: TypeAlias = tuple[str, str]
OnSecond: TypeAlias = Callable[[Figures], None]
Unsubscribe: TypeAlias = Callable[[], None]
F = TypeVar("F", bound=CallFigures)


class Counts(NamedTuple):
    """Calls that ended; ``latency`` has a bucket's place and its calls, where there are any."""

    calls: int = 0
    errors: int = 0
    denials: int = 0
    latency: tuple[tuple[int, int], ...] = ()


class Shown(TypedDict):
    """What ``CallFigures`` say."""

    calls: int
    errors: int
    denials: int
    p50_ms: float | None
    p95_ms: float | None


class Second(NamedTuple):
    """One second as a whole, and what was called in it."""

    figures: Figures
    tools: Mapping[Tool, Counts]


class RecentFigures:
    """The seconds of the window, the oldest first. ``run`` it beside whatever counts.

    Several that count are added up. ``running`` says how many calls are under way, where that is
    known.
    """

    def __init__(
        self, *metrics: Metrics, clock: Clock, running: Callable[[], int | None] = lambda: None
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._running = running
        self._seconds: deque[Second] = deque(maxlen=WINDOW_SECONDS)
        self._seen = [{tool: counts_of(stats) for tool, stats in one.tools()} for one in metrics]
        self._listeners: list[OnSecond] = []

    async def run(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await self._clock.sleep(1.0)
            self.look()

    def look(self) -> None:
        """Keep what was counted since the last look, and tell it."""
        tools = _bounded(self._moved())
        at = rfc3339(self._clock.now()) or ""
        figures = Figures(at=at, running=self._running(), **shown(tools.values()))
        self._seconds.append(Second(figures, tools))
        for listener in tuple(self._listeners):
            try:
                listener(figures)
            except Exception:  # somebody else's code: the others are told all the same
                logger.exception("a listener failed on the figures of a second")

    def subscribe(self, on_second: OnSecond) -> Unsubscribe:
        """Call a function with each second's figures, until the returned one is called."""
        self._listeners.append(on_second)
        return lambda: self._listeners.remove(on_second)

    def seconds(self) -> tuple[Figures, ...]:
        """Return every second of the window."""
        return tuple(second.figures for second in self._seconds)

    def servers(self) -> tuple[ServerFigures, ...]:
        """Return what was called in the window, the busiest first."""
        found: dict[str, dict[str, list[Counts]]] = {}
        for second in self._seconds:
            for (server, tool), counts in second.tools.items():
                found.setdefault(server, {}).setdefault(tool, []).append(counts)
        return _busiest(_server_figures(server, tools) for server, tools in found.items())

    def _moved(self) -> dict[Tool, Counts]:
        """Return what was counted since the last look."""
        found: dict[Tool, Counts] = {}
        for metrics, seen in zip(self._metrics, self._seen, strict=True):
            for tool, counts in _moved(metrics, seen):
                found[tool] = total((found[tool], counts)) if tool in found else counts
        return found


def _moved(metrics: Metrics, seen: dict[Tool, Counts]) -> Iterator[tuple[Tool, Counts]]:
    for tool, stats in metrics.tools():
        before = seen.get(tool, Counts())
        if stats.calls != before.calls:
            now = seen[tool] = counts_of(stats)
            yield tool, _difference(now, before)


def counts_of(stats: ToolStats) -> Counts:
    """Return what a tool's figures are now."""
    denials = sum(stats.errors.get(code, 0) for code in _DENIED)
    latency = tuple((place, count) for place, count in enumerate(stats.latency) if count)
    return Counts(stats.calls, sum(stats.errors.values()) - denials, denials, latency)


def total(counts: Iterable[Counts]) -> Counts:
    """Add counts up."""
    calls = errors = denials = 0
    latency: Counter[int] = Counter()
    for one in counts:
        calls += one.calls
        errors += one.errors
        denials += one.denials
        latency.update(dict(one.latency))
    return Counts(calls, errors, denials, tuple(sorted(latency.items())))


def shown(counts: Iterable[Counts]) -> Shown:
    """Return what is shown of counts together."""
    found = total(counts)
    return Shown(
        calls=found.calls,
        errors=found.errors,
        denials=found.denials,
        p50_ms=quantile(found.latency, 0.5),
        p95_ms=quantile(found.latency, 0.95),
    )


def quantile(latency: Sequence[tuple[int, int]], share: float) -> float | None:
    """Estimate how long so many of the calls took at most, on a straight line in their bucket."""
    wanted = share * sum(count for _, count in latency)
    for place, count in latency:
        if count >= wanted and place < len(LATENCY_BOUNDS):
            lower = LATENCY_BOUNDS[place - 1] if place else 0.0
            return round(lower + (LATENCY_BOUNDS[place] - lower) * wanted / count, 3)
        wanted -= count
    return LATENCY_BOUNDS[-1] if latency else None


def _difference(now: Counts, before: Counts) -> Counts:
    had = dict(before.latency)
    more = ((place, count - had.get(place, 0)) for place, count in now.latency)
    return Counts(
        now.calls - before.calls,
        now.errors - before.errors,
        now.denials - before.denials,
        tuple((place, count) for place, count in more if count),
    )


def _bounded(tools: dict[Tool, Counts]) -> dict[Tool, Counts]:
    """Keep the busiest tools by name; the others share one."""
    if len(tools) <= MOST_TOOLS:
        return tools
    nameless = tools.pop((OTHER, OTHER), Counts())
    busiest = sorted(tools.items(), key=lambda one: one[1].calls, reverse=True)
    rest = (counts for _, counts in busiest[MOST_TOOLS:])
    return {**dict(busiest[:MOST_TOOLS]), (OTHER, OTHER): total((nameless, *rest))}


def _server_figures(server: str, tools: Mapping[str, Sequence[Counts]]) -> ServerFigures:
    each = [ToolFigures(tool_name=tool, **shown(counts)) for tool, counts in tools.items()]
    together = shown(one for counts in tools.values() for one in counts)
    return ServerFigures(server_id=server, tools=_busiest(each), **together)


def _busiest(figures: Iterable[F]) -> tuple[F, ...]:
    return tuple(sorted(figures, key=lambda one: one.calls, reverse=True))
