"""Which version of its list a client was given last, as far as that is remembered.

A stream begins by comparing with it. Legacy clients are known by their sessions. All modern clients
of a principal look alike: when two versions were given out within the time that a list is good for,
one of the clients may still have the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from bascule.clock import Clock

MAX_SEEN = 4096
#: A version that no list has: what was seen is not known, and may be anything.
UNKNOWN: Final = b""


class Seen:
    """What was seen, by a digest of whose it is; what was noted longest ago is forgotten first."""

    def __init__(self, clock: Clock, good_seconds: float, most: int = MAX_SEEN) -> None:
        self._clock = clock
        self._good_seconds = good_seconds
        self._most = most
        self._given: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        #: Sessions that were born before may have seen what nobody here remembers.
        self._since = int(clock.now())

    def __len__(self) -> int:
        return len(self._given)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._given)

    def note(self, who: bytes, version: bytes, *, alone: bool) -> None:
        """Note that a list was given out: to one client ``alone``, or to one of several."""
        before, doubtful_until = self._given.pop(who, (version, 0.0))
        if before != version and not alone:
            doubtful_until = self._clock.monotonic() + self._good_seconds
        self._given[who] = version, doubtful_until
        if len(self._given) > self._most:
            self._given.popitem(last=False)
            self._since = int(self._clock.now()) + 1

    def last(self, who: bytes, born: int | None) -> bytes | None:
        """Return the version that was given last; None where nothing was, else UNKNOWN.

        ``born`` is when the session of a legacy client began.
        """
        given = self._given.get(who)
        if given is None:
            return UNKNOWN if born is not None and born < self._since else None
        version, doubtful_until = given
        return UNKNOWN if self._clock.monotonic() < doubtful_until else version
