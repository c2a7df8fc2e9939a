"""Where work for nodes is kept between who asks, who hands it out, and who answers.

A row lives no longer than somebody waits for it: whoever asked takes it away, and what is over
its time is swept. ``postgres_rows.py`` is for replicas that share a database; a process that has
its store for itself keeps them in memory (``LocalRows``), as nobody else could ask or answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.clock import Clock
from bascule.errors import BasculeError

#: How many pieces of work may be open at once: of all nodes, and of one.
MOST_OPEN = 64
MOST_OF_NODE = 8
#: How many answers, steps among them, one piece of work may have.
MOST_ANSWERS = 200
#: What became of an answer: kept; nobody waits for it; or it is the work of another node.
Reception: TypeAlias = Literal["kept", "unwanted", "foreign"]


class TooMuchWork(BasculeError):
    """As much work is open as may be."""

    code = "no_node"

    def __init__(self) -> None:
        super().__init__("the nodes have as much to try as they may have at once: try again soon")


class Work(Struct, frozen=True, kw_only=True):
    """A piece of work for one node; ``seconds`` is what is left of its time.

    ``revision`` is that of the registry as whoever asked knew it: the node should know no less.
    """

    id: str
    node: str
    job: bytes
    revision: int
    seconds: float


class Progress(Struct, frozen=True):
    """How far a piece of work is: whether it was handed out, and what was answered since."""

    taken: bool
    answers: Sequence[bytes]


class WorkRows(Protocol):
    """Keeps work. What cannot be asked raises StoreUnavailable."""

    #: Whether other processes ask and answer too.
    shared: bool

    async def add(self, work: Work) -> None:
        """Keep a piece of work; raise TooMuchWork."""
        ...

    async def waiting(self) -> Collection[str]:
        """Return the nodes that have work which was not handed out."""
        ...

    async def take(self, nodes: Collection[str]) -> Sequence[Work]:
        """Return what waits for nodes; nobody is given it again."""
        ...

    async def handed(self, nodes: Collection[str]) -> Mapping[str, str]:
        """Return what nodes were handed and are to finish: the ids, and whose each is."""
        ...

    async def answer(self, id: str, node: str, body: bytes, *, last: bool) -> Reception:
        """Keep what a node says to work that it was handed."""
        ...

    async def progress(self, known: Mapping[str, int]) -> Mapping[str, Progress]:
        """Return how far some works are, with the answers after so many; without those gone."""
        ...

    async def wanted(self, ids: Collection[str]) -> Collection[str]:
        """Return those of some works that somebody waits for and nobody has finished."""
        ...

    async def withdraw(self, id: str) -> bool:
        """Take a piece of work away unless it was handed out; say whether it was not."""
        ...

    async def remove(self, ids: Collection[str]) -> None:
        """Take works away, as nobody waits for them any more."""
        ...

    async def sweep(self) -> None:
        """Take away what is over its time."""
        ...

    def listening(self, ring: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        """Return what rings when another process wrote something, to be run; None if none does."""
        ...


class _Row:
    def __init__(self, work: Work, until: float) -> None:
        self.work = work
        self.until = until
        self.taken = self.finished = False
        self.answers: list[bytes] = []


class LocalRows:
    """``WorkRows`` of a process that shares its store with nobody."""

    shared = False

    def __init__(
        self, clock: Clock, most: int = MOST_OPEN, most_of_node: int = MOST_OF_NODE
    ) -> None:
        self._clock = clock
        self._most = most, most_of_node
        self._rows: dict[str, _Row] = {}

    async def add(self, work: Work) -> None:
        """Keep a piece of work."""
        await self.sweep()
        of_node = sum(row.work.node == work.node for row in self._rows.values())
        if len(self._rows) >= self._most[0] or of_node >= self._most[1]:
            raise TooMuchWork
        self._rows[work.id] = _Row(work, self._clock.monotonic() + work.seconds)

    async def waiting(self) -> Collection[str]:
        """Return who has work."""
        return {row.work.node for row in self._living() if not row.taken}

    async def take(self, nodes: Collection[str]) -> Sequence[Work]:
        """Return what waits."""
        now = self._clock.monotonic()
        found = [row for row in self._living() if not row.taken and row.work.node in nodes]
        for row in found:
            row.taken = True
        return [replace(row.work, seconds=row.until - now) for row in found]

    async def handed(self, nodes: Collection[str]) -> Mapping[str, str]:
        """Return what nodes were handed and are to finish."""
        open_now = (row for row in self._living() if row.taken and not row.finished)
        return {row.work.id: row.work.node for row in open_now if row.work.node in nodes}

    async def answer(self, id: str, node: str, body: bytes, *, last: bool) -> Reception:
        """Keep what a node says."""
        row = self._rows.get(id)
        if row is not None and row.work.node != node:
            return "foreign"
        open_now = row is not None and row.taken and not row.finished and self._lives(row)
        if row is None or not open_now or len(row.answers) >= MOST_ANSWERS:
            return "unwanted"
        row.answers.append(body)
        row.finished = last
        return "kept"

    async def progress(self, known: Mapping[str, int]) -> Mapping[str, Progress]:
        """Return how far works are."""
        rows = {id: self._rows[id] for id in known if id in self._rows}
        return {id: Progress(row.taken, row.answers[known[id] :]) for id, row in rows.items()}

    async def wanted(self, ids: Collection[str]) -> Collection[str]:
        """Return those that are waited for."""
        return {row.work.id for row in self._living() if not row.finished} & {*ids}

    async def withdraw(self, id: str) -> bool:
        """Take a piece of work away unless it was handed out."""
        row = self._rows.get(id)
        if row is None or row.taken:
            return False
        del self._rows[id]
        return True

    async def remove(self, ids: Collection[str]) -> None:
        """Take works away."""
        for id in ids:
            self._rows.pop(id, None)

    async def sweep(self) -> None:
        """Take away what is over its time."""
        self._rows = {id: row for id, row in self._rows.items() if self._lives(row)}

    def listening(self, ring: Callable[[], None]) -> None:
        """Return nothing: nobody else writes."""
        del ring

    def _lives(self, row: _Row) -> bool:
        return self._clock.monotonic() < row.until

    def _living(self) -> list[_Row]:
        return [row for row in self._rows.values() if self._lives(row)]
