"""How many connections a server holds: in all, and of one address without a valid token.

Whoever has shown no token is let in all the same, since that is how one is shown; what gives way is
the connection that has waited longest without showing one. Everybody on a machine has the same
address there, so a burst of callers is given a moment to speak before any of them is let go. A few
places beyond the others are for questions about health, which must be answered when all is full.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final, Protocol

from msgspec import Struct

#: The scope's name for what is called once the token of a request was found valid.
SHOWN: Final = "token_shown"
#: What may be asked in the places that are kept.
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
#: How often connections are looked at that may have waited for too long.
SWEEP_SECONDS = 1.0
_V6_BITS = 64


class Caps(Struct, frozen=True, kw_only=True):
    """How many connections there may be."""

    total: int = 512
    #: Of one address, without having shown a valid token.
    strangers: int = 64
    #: Places beyond ``total`` for questions about health.
    health: int = 8
    #: A stranger may be silent for this long before there can be too many of them.
    grace_seconds: float = 1.0


class Held(Protocol):
    """A connection, as far as this module is concerned."""

    def let_go(self) -> None:
        """Close it now."""
        ...

    def end_if_overdue(self, now: float) -> None:
        """Close it if what it waits for should have come by now."""
        ...


class Connections:
    """Counts connections, and decides which must give way.

    One look at all of them every ``sweep_seconds`` finds those that have waited for too long, so
    that none needs a timer of its own.
    """

    def __init__(self, caps: Caps, sweep_seconds: float = SWEEP_SECONDS) -> None:
        self._caps = caps
        self._sweep_seconds = sweep_seconds
        self._sweeping: asyncio.TimerHandle | None = None
        #: All connections, the oldest first, with the address of each.
        self._all: dict[Held, str] = {}
        #: Those without a token by address, the oldest first, with the moment each came.
        self._strangers: dict[str, dict[Held, float]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, held: Held, address: str) -> bool:
        """Take a connection in; say whether it may ask for anything, or for health alone.

        One for which there is no place at all is closed at once.
        """
        loop = asyncio.get_running_loop()
        origin = origin_of(address)
        if len(self._all) >= self._caps.total:
            self._make_room()
        room = len(self._all) < self._caps.total
        if not room and len(self._all) >= self._caps.total + self._caps.health:
            held.let_go()
            return False
        self._all[held] = origin
        self._empty.clear()
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._sweep_seconds, self._sweep)
        strangers = self._strangers.setdefault(origin, {})
        strangers[held] = loop.time()
        if len(strangers) > self._caps.strangers:
            loop.call_later(self._caps.grace_seconds, self._trim, origin)
        return room

    def has_shown(self, held: Held) -> None:
        """Count a connection among those whose caller is known."""
        origin = self._all.get(held, "")
        strangers = self._strangers.get(origin)
        if strangers is not None:
            strangers.pop(held, None)
            if not strangers:
                del self._strangers[origin]

    def gone(self, held: Held) -> None:
        """Forget a connection. Any number of times."""
        self.has_shown(held)
        self._all.pop(held, None)
        if self._all:
            return
        self._empty.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    async def emptied(self) -> None:
        """Wait until no connection is held."""
        await self._empty.wait()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(self._sweep_seconds, self._sweep)
        for held in tuple(self._all):
            held.end_if_overdue(loop.time())

    def _make_room(self) -> None:
        """Let the oldest stranger go, of whatever address."""
        for held, origin in self._all.items():
            if held in self._strangers.get(origin, ()):
                self._end(held)
                return

    def _trim(self, origin: str) -> None:
        """Let strangers of an address go that are too many and have had their moment."""
        latest = asyncio.get_running_loop().time() - self._caps.grace_seconds
        strangers = self._strangers.get(origin, {})
        surplus = len(strangers) - self._caps.strangers
        for held in [one for one, came in strangers.items() if came <= latest][: max(0, surplus)]:
            self._end(held)

    def _end(self, held: Held) -> None:
        self.gone(held)
        held.let_go()


def origin_of(address: str) -> str:
    """Return what counts as one address: of IPv6 a whole network, which is what one host gets."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, _V6_BITS), strict=False))
