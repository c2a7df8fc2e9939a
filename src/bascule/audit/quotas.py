"""What one token may have written down: so many refusals a minute, so many bytes a day.

Whoever has a token can make events, and must not push out those of others, nor fill the disk.
What is beyond the limits is counted, and the count is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from bascule.audit.events import (
    CallEvent,
    DenialsCounted,
    GuestEnded,
    SessionOpened,
    SessionRefusal,
    ToolsListed,
)
from bascule.clock import Clock

DENIALS_A_MINUTE = 100
_MINUTE = 60.0
_DAY = 86_400.0


#: Events that somebody with a token can cause.
Caused: TypeAlias = SessionOpened | SessionRefusal | ToolsListed | GuestEnded | CallEvent


class _Tally(Struct, eq=False):
    """What a token had written down lately."""

    token_id: str
    #: When its day and its minute began, by the clock that nobody sets.
    day: float
    minute: float
    bytes: int = 0
    refusals: int = 0
    counted: int = 0
    caller: str | None = None
    task_id: str | None = None


class Quotas:
    """The tallies of all tokens. They begin anew with every day, and with the process."""

    def __init__(self, clock: Clock, bytes_a_day: int) -> None:
        self._clock = clock
        self._bytes_a_day = bytes_a_day
        self._tallies: dict[str, _Tally] = {}
        #: Those of which something was counted and not written yet.
        self._crowded: dict[str, _Tally] = {}

    def spend(self, token_id: str, size: int) -> None:
        """Note how many bytes an event of a token takes."""
        tally, now = self._tallies.get(token_id), self._clock.monotonic()
        if tally is None:
            tally = self._tallies[token_id] = _Tally(token_id, now, now)
        elif now >= tally.day + _DAY:
            tally.day, tally.bytes = now, 0
        tally.bytes += size

    def wait_of(self, token_id: str) -> float | None:
        """Return for how many seconds a token has no bytes left; None if it has."""
        tally = self._tallies.get(token_id)
        if tally is None or tally.bytes < self._bytes_a_day:
            return None
        left = tally.day + _DAY - self._clock.monotonic()
        return left if left > 0 else None

    def admits(self, token_id: str, event: Callable[[], Caused], *, refusal: bool) -> bool:
        """Say whether an event of a token is written; one too many is counted instead."""
        self.spend(token_id, 0)
        tally, now = self._tallies[token_id], self._clock.monotonic()
        if token_id not in self._crowded and now >= tally.minute + _MINUTE:
            tally.minute, tally.refusals = now, 0
        tally.refusals += refusal
        if tally.refusals <= DENIALS_A_MINUTE and self.wait_of(token_id) is None:
            return True
        if not tally.counted:
            caused = event()
            tally.caller, tally.task_id = caused.caller, caused.task_id
            self._crowded[token_id] = tally
        tally.counted += 1
        return False

    def counts(self, *, all: bool = False) -> Iterator[DenialsCounted]:
        """Yield an event for each token of which something was counted, when its minute is over."""
        now, date = self._clock.monotonic(), self._clock.now()
        for token, tally in list(self._crowded.items()):
            if not all and now < tally.minute + _MINUTE:
                continue
            del self._crowded[token]
            yield DenialsCounted(
                timestamp=date,
                token_id=token,
                task_id=tally.task_id,
                caller=tally.caller,
                count=tally.counted,
                since=date - (now - tally.minute),
            )
            tally.minute, tally.refusals, tally.counted = now, 0, 0

    @property
    def any_counted(self) -> bool:
        """Say whether there is a count to write, sooner or later."""
        return bool(self._crowded)
