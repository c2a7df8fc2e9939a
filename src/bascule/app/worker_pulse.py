"""Whether a worker still answers: one that hangs without dying would keep its part of the port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bascule.clock import Clock

#: Questions in a row that may stay without an answer.
_QUESTIONS: Final = 6
#: A worker that has not said anything yet is still being loaded: it may take so many times longer.
_START: Final = 4


class Pulse:
    """Asks one worker again and again; ``silence`` ends when it has not answered for too long.

    Questions are counted, and not time: after a sleep of the whole machine, or where its owner had
    no turn, a worker has been asked once more, and not been silent for hours.
    """

    def __init__(self, ask: Callable[[], None], seconds: float, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self.seconds = seconds
        self._unanswered = 0
        self._most = _START * _QUESTIONS

    def heard(self) -> None:
        """Note that the worker said something."""
        self._unanswered = 0
        self._most = _QUESTIONS

    async def silence(self) -> None:
        """Wait until the worker has left too many questions unanswered."""
        while self._unanswered < self._most:
            self._unanswered += 1
            self._ask()
            await self._clock.sleep(self.seconds / _QUESTIONS)
