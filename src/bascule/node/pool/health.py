"""What requests tell about a server: whether it answers, and what it still owes.

A server is doubted only when it has been silent for as long as its record gives a call, however
little time its callers gave it. A caller who leaves early leaves a debt behind, since the call may
still be worked on; any answer to something sent later settles it. Until then that caller cannot
leave many more, so nobody fills a slow server with calls that he does not wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Literal, Protocol

import msgspec

from bascule.clock import Clock
from bascule.errors import BasculeError, NotDelivered
from bascule.model.server import ServerRecord
from bascule.model.status import Trouble
from bascule.node.pool.client import McpClient
from bascule.node.settings import NodeSettings

Kind = Literal["call", "list"]

#: How many calls one caller may leave behind before its next one waits for a sign of life.
LEFT_BEHIND = 2
#: How long trouble is shown after it was last seen.
SHOWN_SECONDS = 60.0
#: How long a silent server gets at least for a sign of life.
DOUBT_SECONDS = 1.0
_LISTEN_SECONDS = 3600.0
_PAUSE_SECONDS = 1.0  # between one subscription and the next


class Debt(msgspec.Struct, frozen=True, gc=False):
    """A request without an answer: since when, of which kind, and whose."""

    since: float
    kind: Kind
    whose: str


class Debts:
    """What a server owes on one connection, in the order it was asked for."""

    __slots__ = ("_on_settled", "_owed", "_time", "ending", "heard_at", "last", "left")

    def __init__(self, time: Callable[[], float], on_settled: Callable[[], None]) -> None:
        self._time = time
        self._on_settled = on_settled
        #: The number of the newest request.
        self.last = 0
        self._owed: dict[int, Debt] = {}
        #: What callers have left behind, by number.
        self.left: dict[int, Debt] = {}
        #: Whether somebody waits until nothing is owed: nothing more is asked.
        self.ending = False
        #: When it answered last; times are the event loop's.
        self.heard_at = -inf

    def asked(self, since: float, kind: Kind, whose: str = "") -> int:
        """Note a request that leaves now; give its number."""
        self.last = number = self.last + 1
        self._owed[number] = Debt(since, kind, whose)
        return number

    def answered(self, number: int) -> None:
        """Note an answer; what was left behind before it is settled with it."""
        self._owed.pop(number, None)
        self.heard_at = self._time()
        if self.left:
            self._settle(number)
        if self.ending:
            self._on_settled()

    def abandoned(self, number: int) -> None:
        """Note that nobody waits for this answer any more."""
        debt = self._owed.pop(number, None)
        if debt is not None:
            self.left[number] = debt
        if self.ending:
            self._on_settled()

    @property
    def awaited(self) -> bool:
        """Say whether anybody waits for an answer."""
        return bool(self._owed)

    def _settle(self, number: int) -> None:
        settled = [each for each in self.left if each <= number]
        for each in settled:
            del self.left[each]
        if settled:
            self._on_settled()

    def crowded(self, whose: str) -> bool:
        """Say whether a caller left so much behind that its next call has to wait."""
        if not self.left or not whose:
            return False
        return sum(debt.whose == whose for debt in self.left.values()) >= LEFT_BEHIND

    def due(self, call_seconds: float, list_seconds: float) -> float:
        """Return when the silence becomes doubtful: by the record's own times, no sooner."""
        for kind, seconds in (("call", call_seconds), ("list", list_seconds)):
            since = min((debt.since for debt in self._all() if debt.kind == kind), default=None)
            if since is not None:
                return max(since, self.heard_at) + seconds
        return inf

    def _all(self) -> Iterable[Debt]:
        yield from self._owed.values()
        yield from self.left.values()


class Owner(Protocol):
    """Who holds a connection, as its watch sees it."""

    @property
    def record(self) -> ServerRecord: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def last_used(self) -> float: ...

    def proven(self, watch: Watch) -> None: ...

    def doubted(self, words: str) -> None: ...

    def rest(self) -> None: ...

    def silent(self, reason: str) -> None: ...


class Watch:
    """One connected server under observation, from its handshake to its end."""

    def __init__(self, client: McpClient, owner: Owner, clock: Clock) -> None:
        self.client = client
        self._owner = owner
        self._clock = clock
        # Made when somebody waits: a thousand idle connections have nothing to tell.
        self._news: asyncio.Event | None = None
        self._slow_at = self._flooding_at = -inf
        #: The event loop's own clock, which deadlines are in.
        self.time = asyncio.get_running_loop().time
        self.debts = Debts(self.time, self.tell)
        #: Whether it is doubted: nothing more is sent until that is decided.
        self.in_doubt = False
        #: Whether somebody asks for a sign of life.
        self.sounding = False
        self._over = False

    def admits(self, whose: str) -> bool:
        """Say whether a call of this caller may leave at once."""
        if self.in_doubt or not self.client.channel.alive:
            return False
        debts = self.debts
        return not debts.left or not debts.crowded(whose)

    async def wait(self) -> None:
        """Wait until something has changed."""
        self._news = self._news or asyncio.Event()
        await self._news.wait()

    def tell(self) -> None:
        """Wake those who wait."""
        if self._news is not None:
            self._news.set()
            self._news = None

    def end(self) -> None:
        """Stop watching: the connection was let go."""
        self._over = self.debts.ending = True
        self.tell()

    async def drained(self) -> None:
        """Wait until nobody waits for an answer any more; to be called after the ``end``."""
        while self.debts.awaited:
            await self.wait()

    def abandoned(self, number: int) -> bool:
        """Note that nobody waits for this answer any more; say whether to ``sound`` now."""
        self.debts.abandoned(number)
        return not self.sounding and self.client.channel.alive

    def slow(self) -> None:
        """Note that a call waited for as long as the record allows."""
        self._slow_at = self._clock.monotonic()

    def flooding(self) -> None:
        """Note that the server says so much unasked that reading had to pause."""
        self._flooding_at = self._clock.monotonic()

    @property
    def trouble(self) -> Trouble | None:
        """Return what is wrong with the server, by what was seen lately."""
        now = self._clock.monotonic()
        if now - self._slow_at < SHOWN_SECONDS:
            return "slow"
        return "flooding" if now - self._flooding_at < SHOWN_SECONDS else None

    async def sound(self) -> None:
        """Ask for a sign of life until nothing is left behind; a long silence is the end."""
        self.sounding = True
        try:
            while self.debts.left and not self._over:
                await self._ask(max(self._due, self.time() + DOUBT_SECONDS))
        finally:
            self.sounding = False

    async def _ask(self, deadline: float) -> None:
        mark = self.debts.last
        try:
            await self.client.keepalive(deadline=deadline)
        except BasculeError as error:
            early = self.time() < deadline
            gone = early and isinstance(error, NotDelivered)  # nobody is there: no silence
            if self.debts.left and (gone or self.time() >= self._due):
                self._doubt(str(error) if gone else "")
            if early and not self._over:  # there is no haste to ask again
                await self._clock.sleep(DOUBT_SECONDS)
        else:
            self.debts.answered(mark)  # and so is all that was left before it
            self._owner.proven(self)

    async def listen(self, on_tools_changed: Callable[[], None]) -> None:
        """Hear of changed tools from a server that must be asked to tell."""
        while not self._over and self.client.channel.alive:
            try:
                await self.client.listen(deadline=self.time() + _LISTEN_SECONDS)
            except BasculeError:
                return
            await self._clock.sleep(_PAUSE_SECONDS)  # a server that ends each one at once
            on_tools_changed()

    async def keep_alive(self, settings: NodeSettings) -> None:
        """Close an idle connection; ask a quiet one for a sign of life."""
        pause = min(settings.idle_seconds, settings.keepalive_seconds)
        while not self._over:
            await self._clock.sleep(pause)
            quiet = self._clock.monotonic() - self._owner.last_used
            if self._owner.in_flight:
                continue
            if quiet >= settings.idle_seconds and not self._over:
                self._owner.rest()
                return
            if quiet >= settings.keepalive_seconds:
                await self._probe(settings.keepalive_timeout)

    async def _probe(self, seconds: float) -> None:
        """One sign of life missed is a warning; a second ends a connection that nobody uses."""
        try:
            await self.client.keepalive(deadline=self.time() + seconds)
        except BasculeError as error:
            if self._owner.in_flight or self._over:
                return
            tell = self._owner.silent if self._owner.state == "degraded" else self._owner.doubted
            tell(f"no sign of life: {error}")
        else:
            self._owner.proven(self)

    @property
    def _due(self) -> float:
        budgets = self._owner.record.budgets
        return self.debts.due(budgets.tool_timeout_ms / 1000, budgets.list_timeout_ms / 1000)

    def _doubt(self, gone: str) -> None:
        """Let go of a silent server once nobody waits on it, and send it no more until then."""
        seconds = self._owner.record.budgets.tool_timeout_ms / 1000
        silent = f"neither a call nor a sign of life was answered within {seconds:g} s"
        if self._over:
            return
        if not self._owner.in_flight:
            self._owner.silent(f"dead: {gone or silent}")
            return
        self.in_doubt = True
        self.slow()
        self._owner.doubted(f"slow: {gone or silent}, and others still wait")
