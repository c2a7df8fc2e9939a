"""How every server and node stands, at hand in memory: what a list shows beside the records.

What this process hears itself counts at once; what nodes told others is read as it changes, every
few seconds. So a question reads nothing, and is answered when the store is away. A node that has
been silent for ``SILENT_SECONDS`` has no say in how servers stand, and is shown as silent; after
``FORGOTTEN_SECONDS`` it is forgotten. One that follows on a stream is noted while that is open, and
lost ``LOST_SECONDS`` after.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Literal, TypeAlias

from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.nodes import Heard, NodeReports, Note
from bascule.control.registry.status import UNKNOWN, CombinedStatus, NodeReport, combined
from bascule.model.status import ServerStatus, health_of

#: A node reports at least every 15 seconds.
SILENT_SECONDS = 90.0
#: Whoever holds the stream of a node notes it every 5 seconds.
LOST_SECONDS = 15.0
FORGOTTEN_SECONDS = 86_400.0
Silence: TypeAlias = Literal["silent", "lost"]
#: In a list, a server has the words of so many nodes.
MOST_NODES = 8
#: With more words than this to look at, servers are combined beside the event loop, and nobody who
#: asks waits for it.
_MANY_WORDS = 5_000
#: The turn of a report that is being kept: no reading may have begun after it.
_UNDER_WAY = sys.maxsize


class Standing:
    """What nodes say, and what that means for each server."""

    def __init__(self, reports: NodeReports | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Stand on kept reports; without any, on those that are made here."""
        #: The nodes of this process, for which nobody else speaks.
        self.own: set[str] = set()
        #: When a second process was last turned away here that said it was the same node.
        self.doubled: dict[str, float] = {}
        self._reports = reports
        self._clock = clock
        self._place = 0
        self._read_at = clock.monotonic()
        self._reading = asyncio.Lock()
        self._turns = count(1)
        #: When, by turns, this process was last told something by a node.
        self._told: dict[str, int] = {}
        self._replica = secrets.token_hex(8)
        #: When a node's stream was last seen open, by whomever.
        self._noted: dict[str, float] = {}
        self._nodes: dict[str, NodeReport] = {}
        self._said: dict[str, dict[str, ServerStatus]] = {}
        self._about: dict[str, dict[str, ServerStatus]] = {}
        self._silent: frozenset[str] = frozenset()
        self._combined: dict[str, CombinedStatus] = {}
        self._combining = asyncio.Lock()
        self._stale: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever something may stand otherwise."""
        self._listeners.append(listener)

    # --- what nodes say

    async def report(self, report: NodeReport) -> None:
        """Take what a node says here, and keep it; raise StoreUnavailable if it is not kept."""
        self._take_node(report.node, report)
        named = {status.server_id: status for status in report.servers}
        gone = self._said.get(report.node, {}).keys() - named.keys()
        for server_id, status in {**named, **dict.fromkeys(gone)}.items():
            self._take_word(report.node, server_id, status)
        self._tell()
        if self._reports is not None:
            with self._telling(report.node):
                await self._reports.report(report)

    async def forget_node(self, node: str) -> None:
        """Drop what a node said."""
        self._take_node(node, None)
        self._tell()
        if self._reports is not None:
            with self._telling(node):
                await self._reports.forget_node(node, self._clock.now())

    async def note(self, nodes: Sequence[str]) -> None:
        """Note that nodes follow here now, and keep it; raise StoreUnavailable if it is not."""
        now = self._clock.now()
        self._take_notes([(now, nodes)])
        if self._reports is not None:
            await self._reports.note(self._replica, nodes, now)

    def see(self, node: str) -> None:
        """Know that a node follows here now; others are told by the next ``note``.

        What it said last may be minutes old, as it is after a restart.
        """
        self._take_notes([(self._clock.now(), [node])])

    @contextmanager
    def _telling(self, node: str) -> Generator[None, None, None]:
        """Let no reading undo what a node says here: one may have begun before it was kept."""
        self._told[node] = _UNDER_WAY
        try:
            yield
        finally:
            self._told[node] = next(self._turns)

    async def refresh(self) -> None:
        """Take in what nodes told others, and who fell silent; raise StoreUnavailable."""
        try:
            if self._reports is not None:
                await self._read(self._reports)
        finally:
            self._grow_silent()
        await self._combine()

    async def _read(self, reports: NodeReports) -> None:
        async with self._reading:
            began, now = next(self._turns), self._clock.monotonic()
            if now - self._read_at > FORGOTTEN_SECONDS / 2:  # what went since may be forgotten
                self._place = 0
            heard = await reports.heard(self._place)
            self._place, self._read_at = heard.place, now
            self._take(heard, began)

    def _take(self, heard: Heard, began: int) -> None:
        own = {node for node, turn in self._told.items() if turn > began}
        if heard.whole:
            for node in self._nodes.keys() - heard.nodes.keys() - own:
                self._take_node(node, None)
        for node, report in heard.nodes.items():
            if node not in own:
                self._take_node(node, report)
        for node, server_id, status in heard.words:
            if node not in own and node in self._nodes:
                self._take_word(node, server_id, status)
        self._take_notes(heard.notes)
        if heard.nodes:
            self._tell()

    async def forget_silent(self) -> None:
        """Forget nodes that have been silent for too long, wherever they are kept."""
        if self._reports is not None:
            await self._reports.forget_before(self._clock.now() - FORGOTTEN_SECONDS)

    # --- how things stand

    def nodes(self) -> tuple[NodeReport, ...]:
        """Return what the nodes say, in the order of their names."""
        return tuple(
            replace(
                report,
                at=max(report.at, self._noted.get(node, 0.0)),
                servers=tuple(self._said.get(node, {}).values()),
            )
            for node, report in sorted(self._nodes.items())
        )

    def states(self) -> dict[str, int]:
        """Return how many nodes are in which state."""
        return Counter(self.silence_of(one) or one.state for one in self._nodes.values())

    def silence_of(self, report: NodeReport) -> Silence | None:
        """Say how a node is called that has not been heard of for a while; None for others.

        One that was lost and reports nevertheless does so without a stream.
        """
        now, noted = self._clock.now(), self._noted.get(report.node)
        if noted is not None and report.at <= noted + LOST_SECONDS:
            return "lost" if now - noted > LOST_SECONDS else None
        return "silent" if now - report.at > SILENT_SECONDS else None

    def followers(self) -> frozenset[str]:
        """Return the nodes whose stream was seen open lately, by whomever."""
        since = self._clock.now() - LOST_SECONDS
        return frozenset(node for node, at in self._noted.items() if at >= since)

    def words_on(self, server_id: str) -> Mapping[str, ServerStatus]:
        """Return what nodes that are not silent say about one server."""
        return self._spoken(server_id)

    def status(self, server_id: str) -> CombinedStatus:
        """Return how one server stands, with the words of all nodes."""
        self._grow_silent()
        return combined(self._spoken(server_id))

    async def statuses(self, servers: Iterable[str]) -> dict[str, CombinedStatus]:
        """Return how servers stand, each with the words of a few nodes.

        Of very many words, as they stood at the last ``refresh``.
        """
        self._grow_silent()
        if not self._is_much or not self._combined:
            await self._combine()
        return {one: self._combined.get(one, UNKNOWN) for one in servers}

    async def _combine(self) -> None:
        async with self._combining:
            if self._is_much:
                self._combined.update(await asyncio.to_thread(_all_combined, self._taken()))
            else:
                self._combined.update(_all_combined(self._taken()))

    @property
    def _is_much(self) -> bool:
        return len(self._stale) * len(self._nodes) > _MANY_WORDS

    def _taken(self) -> dict[str, dict[str, ServerStatus]]:
        """Return the words about servers that stand otherwise now than when last combined."""
        stale, self._stale = self._stale, set()
        return {server_id: self._spoken(server_id) for server_id in stale}

    def _spoken(self, server_id: str) -> dict[str, ServerStatus]:
        about, silent = self._about.get(server_id, {}), self._silent
        return {node: s for node, s in about.items() if node not in silent} if silent else {**about}

    # --- taking in

    def _take_node(self, node: str, report: NodeReport | None) -> None:
        if report is not None:
            self._nodes[node] = replace(report, servers=())
            return
        self._nodes.pop(node, None)
        self._noted.pop(node, None)
        self.doubled.pop(node, None)
        for server_id in [*self._said.get(node, {})]:
            self._take_word(node, server_id, None)
        self._said.pop(node, None)

    def _take_notes(self, notes: Iterable[Note]) -> None:
        for at, nodes in notes:
            for node in nodes:
                self._noted[node] = max(at, self._noted.get(node, 0.0))

    def _take_word(self, node: str, server_id: str, status: ServerStatus | None) -> None:
        said = self._said.setdefault(node, {})
        shown = None if status is None else _with_health(status)
        if said.get(server_id) == shown:
            return
        self._stale.add(server_id)
        about = self._about.setdefault(server_id, {})
        if shown is not None:
            said[server_id] = about[node] = shown
            return
        del said[server_id], about[node]
        if not about:
            del self._about[server_id]

    def _grow_silent(self) -> None:
        """Take the say of those who are silent now, and forget who has been for very long."""
        now = self._clock.now()
        for node in [n for n, one in self._nodes.items() if now - one.at > FORGOTTEN_SECONDS]:
            self._take_node(node, None)
        for node in [n for n, at in self._noted.items() if now - at > FORGOTTEN_SECONDS]:
            del self._noted[node]
        silent = frozenset(node for node, one in self._nodes.items() if self.silence_of(one))
        changed, self._silent = silent ^ self._silent, silent
        for node in changed:
            self._stale |= self._said.get(node, {}).keys()
        if changed:
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _all_combined(
    words: Mapping[str, Mapping[str, ServerStatus]],
) -> dict[str, CombinedStatus]:
    return {server_id: combined(nodes, MOST_NODES) for server_id, nodes in words.items()}


@lru_cache(maxsize=16_384)
def _with_health(status: ServerStatus) -> ServerStatus:
    """Return a status as it is shown; nodes that say the same share it."""
    return replace(status, health=health_of(status.state))
