"""Which version of its list a client was given last, as far as that is remembered.

A stream begins by comparing with it. Legacy clients are known by their sessions. All modern clients
of a principal look alike: when two versions were given out within the time that a list is good for,
one of the clients may still have the other. No token pushes out what another's clients saw.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import Final

from bascule.clock import Clock

#: How much is remembered for one token, and for how many tokens.
MAX_PER_TOKEN = 1024
MAX_TOKENS = 256
#: A version that no list has: what was seen is not known, and may be anything.
UNKNOWN: Final = b""


class _Own:
    """What the clients of one token saw."""

    __slots__ = ("given", "since")

    def __init__(self, since: int) -> None:
        self.given: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        #: Sessions that were born before may have seen what nobody here remembers.
        self.since = since


class Seen:
    """What was seen, by a digest of whose it is; what was noted longest ago is forgotten first."""

    def __init__(self, clock: Clock, good_seconds: float, most: int = MAX_PER_TOKEN) -> None:
        self._clock = clock
        self._good_seconds = good_seconds
        self._most = most
        self._own: OrderedDict[str, _Own] = OrderedDict()
        self._since = int(clock.now())

    def __len__(self) -> int:
        return sum(len(own.given) for own in self._own.values())

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(own.given for own in self._own.values())

    def note(self, token: str, who: bytes, version: bytes, *, alone: bool) -> None:
        """Note that a list was given out: to one client ``alone``, or to one of several."""
        own = self._own.setdefault(token, _Own(self._since))
        self._own.move_to_end(token)
        before, doubtful_until = own.given.pop(who, (version, 0.0))
        if before != version and not alone:
            doubtful_until = self._clock.monotonic() + self._good_seconds
        own.given[who] = version, doubtful_until
        if len(own.given) > self._most:
            own.given.popitem(last=False)
            own.since = int(self._clock.now()) + 1
        if len(self._own) > MAX_TOKENS:
            self._own.popitem(last=False)
            self._since = int(self._clock.now()) + 1

    def last(self, token: str, who: bytes, born: int | None) -> bytes | None:
        """Return the version that was given last; None where nothing was, else UNKNOWN.

        ``born`` is when the session of a legacy client began; 0 if in another process.
        """
        own = self._own.get(token)
        given = None if own is None else own.given.get(who)
        if given is None:
            since = self._since if own is None else own.since
            return UNKNOWN if born is not None and born < since else None
        version, doubtful_until = given
        return UNKNOWN if self._clock.monotonic() < doubtful_until else version
