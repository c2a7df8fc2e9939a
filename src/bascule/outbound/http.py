"""The HTTP client of everything that Bascule reaches: MCP servers, model backends, its own API.

``HttpClient.send`` sends a request at most once and returns when the head of the answer is here;
the errors in ``failures`` say what is known when none comes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from math import inf

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import DeadlineExceeded, NotDelivered
from bascule.outbound.egress import EgressRules
from bascule.outbound.failures import Unconnected
from bascule.outbound.http1.dialling import Dialling, Proxy, Resolve
from bascule.outbound.http1.head import RequestHead, request_head
from bascule.outbound.http1.line import HttpAnswer, Line
from bascule.outbound.url import Url

__all__ = [
    "Dialling",
    "HttpAnswer",
    "HttpClient",
    "HttpOptions",
    "HttpRequest",
    "Proxy",
    "RequestHead",
    "Resolve",
    "Url",
]

CONNECTIONS = 256
KEEPALIVE_SECONDS = 15.0
_BETWEEN_SWEEPS = 0.005


def nobody_waits() -> None:
    """Nobody waits for a connection."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """What one client may reach, and how.

    Without ``egress`` any address is reached, as the user of this process named it. ``insecure``
    allows plain http to other machines under egress rules. No ``connections`` are no limit.
    ``on_connected`` is called for each connection that is made.
    """

    connect_seconds: float
    egress: EgressRules | None
    insecure: bool = False
    tls: ssl.SSLContext | None = None
    resolve: Resolve | None = None
    connections: int = CONNECTIONS
    proxy: Proxy | None = None
    on_connected: Callable[[], None] = nobody_waits


class HttpRequest(Struct, frozen=True):
    """One request. ``deadline`` (in the loop's time) bounds the answer's head and body.

    ``idle_seconds`` bounds the silence between two pieces of the answer.
    """

    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes | None = None
    deadline: float | None = None
    idle_seconds: float | None = None

    def __repr__(self) -> str:
        return f"HttpRequest({self.method!r}, {self.url!r})"


class HttpClient:
    """Kept connections under one set of rules and one credential; it opens when first used.

    Redirects are not followed, cookies not kept, and what is compressed stays so until it is
    read. Nothing is ever sent twice: a kept connection that the server has closed is noticed
    before a request is written to it, and what is lost afterwards may have been carried out.
    """

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._dialling = Dialling(
            egress=options.egress,
            insecure=options.insecure,
            tls=options.tls,
            resolve=options.resolve,
            proxy=options.proxy,
        )
        self._most = options.connections or inf
        self._count = 0
        self._closings = 0
        self._kept: defaultdict[str, list[Line]] = defaultdict(list)
        self._busy: set[Line] = set()
        self._queue: list[asyncio.Future[None]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf

    @property
    def is_open(self) -> bool:
        """Whether connections are held."""
        return self._count > 0

    def head(self, method: str, url: Url, headers: Mapping[str, str]) -> RequestHead:
        """Return the head of a request, to be sent as often as wanted."""
        proxy = self._options.proxy
        if proxy is None or url.scheme == "https":
            return request_head(method, url, headers)
        own = {} if proxy.authorization is None else {"Proxy-Authorization": proxy.authorization}
        return request_head(method, url, {**headers, **own}, absolute=True)

    async def send(self, request: HttpRequest) -> HttpAnswer:
        """Send a request and return the answer once its head is here; the caller closes it.

        Raises what ``failures`` lists.
        """
        head = self.head(request.method, request.url, request.headers)
        return await self.exchange(head, request.body, request.deadline, request.idle_seconds)

    async def exchange(
        self,
        head: RequestHead,
        body: bytes | None,
        deadline: float | None = None,
        idle_seconds: float | None = None,
    ) -> HttpAnswer:
        """Send a request whose head was made before; see ``send``."""
        if deadline is not None and deadline <= asyncio.get_running_loop().time():
            raise DeadlineExceeded("no time left to send it")
        # Whoever waits for a connection comes first.
        line = None if self._queue else self._reused(head.url.origin)
        if line is None:
            line = await self._connected(head.url, deadline)
        self._busy.add(line)
        answer = HttpAnswer(line, deadline, idle_seconds)
        line.ask(head, body, answer)
        if deadline is not None and deadline < self._alarm_at:
            self._wake_at(deadline)
        if idle_seconds is not None:
            self._wake_at(line.heard + idle_seconds)
        try:
            while not answer.status:
                await answer.changed()
        except BaseException:
            answer.close()  # a line whose answer is whole may serve another by now
            raise
        return answer

    async def close(self) -> None:
        """End every connection and whatever is under way there; it may be used again."""
        self._closings += 1
        for line in [*self._busy, *(line for kept in self._kept.values() for line in kept)]:
            line.close()
        self._kept.clear()
        while self._queue:
            place = self._queue.pop(0)
            if not place.done():
                place.set_exception(NotDelivered("the client was closed"))
        self._wake_at(inf)
        await SYSTEM_CLOCK.sleep(0)  # the loop tells of the end in its next turn

    # -- connections -------------------------------------------------------------------------

    def _reused(self, origin: str) -> Line | None:
        """Return a kept connection that still stands."""
        kept = self._kept.get(origin)
        while kept:
            line = kept.pop()
            if line.is_open and not line.poll(0):
                return line
            line.close()
        return None

    async def _connected(self, url: Url, deadline: float | None) -> Line:
        """Return a new connection, or one that others have done with."""
        latest = None  # a clock that is asked instead may stand a little before the time that is up
        try:
            async with asyncio.timeout_at(deadline):
                line = await self._turn(url.origin)
            if line is not None:
                return line
            latest = asyncio.get_running_loop().time() + self._options.connect_seconds
            return await self._opened(url, latest if deadline is None else min(deadline, latest))
        except TimeoutError:
            if deadline is not None and (latest is None or deadline <= latest):
                raise DeadlineExceeded("no answer in time") from None
            raise Unconnected(url.origin, "late", "no connection in time") from None

    async def _turn(self, origin: str) -> Line | None:
        """Wait until one more connection may be made, which is counted, or one is free."""
        waits = bool(self._queue)
        while waits or self._count >= self._most:
            self._make_room(origin)
            await self._queued()
            waits = False
            if (line := self._reused(origin)) is not None:
                return line
        self._count += 1
        return None

    async def _queued(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._queue:
                self._queue.remove(place)
            else:
                self._next()  # the turn that came too late is another's
            raise

    def _make_room(self, origin: str) -> None:
        """Close a connection that is kept to another origin."""
        for at, kept in self._kept.items():
            if kept and at != origin:
                kept.pop(0).close()
                return

    async def _opened(self, url: Url, deadline: float) -> Line:
        closings = self._closings
        line = None
        try:
            async with asyncio.timeout_at(deadline):
                line = await self._dialling.connect(
                    url, lambda sock: Line(url.origin, sock, self._freed, self._lost)
                )
            if not line.is_open:
                raise Unconnected(url.origin, "network", "the server closed the connection at once")
            if self._closings != closings:
                raise NotDelivered("the client was closed")
            line.adopted = True
            self._options.on_connected()
            return line
        finally:
            if line is None or not line.adopted:
                self._discount()
                if line is not None:
                    line.close()

    def _freed(self, line: Line) -> None:
        self._busy.discard(line)
        line.heard = line.loop.time()
        self._kept[line.origin].append(line)
        if line.heard + KEEPALIVE_SECONDS < self._alarm_at:
            self._wake_at(line.heard + KEEPALIVE_SECONDS)
        if self._queue:
            self._next()

    def _lost(self, line: Line) -> None:
        self._busy.discard(line)
        kept = self._kept[line.origin]
        if line in kept:
            kept.remove(line)
        if line.adopted:
            self._discount()

    def _discount(self) -> None:
        self._count -= 1
        self._next()

    def _next(self) -> None:
        while self._queue:
            place = self._queue.pop(0)
            if not place.done():
                place.set_result(None)
                return

    # -- one alarm for all deadlines ---------------------------------------------------------

    def _wake_at(self, at: float) -> None:
        """Have what is late looked at by then, or sooner; never, when no time is given."""
        if at >= self._alarm_at and at != inf:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, at
        if at != inf:
            self._alarm = asyncio.get_running_loop().call_at(at, self._sweep)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self._alarm, self._alarm_at = None, inf
        soonest = inf
        for line in list(self._busy):
            due = inf if line.answer is None else line.answer.due(line.heard, now)
            if due <= now:
                line.expire()
            else:
                soonest = min(soonest, due)
        for origin, kept in self._kept.items():
            for line in kept:
                if line.heard + KEEPALIVE_SECONDS <= now:
                    line.close()
            self._kept[origin] = [line for line in kept if line.is_open]
            soonest = min(
                [soonest, *(line.heard + KEEPALIVE_SECONDS for line in self._kept[origin])]
            )
        if soonest != inf:
            self._wake_at(max(soonest, now + _BETWEEN_SWEEPS))
