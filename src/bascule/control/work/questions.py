"""A question to a node, as whoever asked it waits."""

from __future__ import annotations

import asyncio

from bascule.clock import Clock
from bascule.control.work.jobs import NOT_DONE, Answer, Undone, answer_of, is_last
from bascule.control.work.rows import Progress, Work
from bascule.errors import BasculeError

#: How long a node that lives may take to be handed its work: a look or two of its replica.
TAKE_SECONDS = 6.0


class NotTaken(BasculeError):
    """The node was not handed its work, and will not be: another may be asked."""

    code = NOT_DONE

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node!r} does not take work: its connection may be lost")


class Question:
    """What is known of one piece of work; it ends with its last answer, or when it must."""

    def __init__(self, work: Work, clock: Clock) -> None:
        self.work = work
        self._clock = clock
        began = clock.monotonic()
        self._take_until = began + TAKE_SECONDS
        self._until = began + work.seconds
        self._taken = self._seen = self._ended = False
        self._answers: asyncio.Queue[Answer | NotTaken] = asyncio.Queue()
        #: How many answers were read.
        self.known = 0

    async def next(self) -> Answer:
        """Return the next answer; raise NotTaken."""
        answer = await self._answers.get()
        if isinstance(answer, NotTaken):
            raise answer
        return answer

    def judge(self, *, lives: bool) -> None:
        """End it when its time is over, or the node that had it is gone."""
        if self._clock.monotonic() >= self._until:
            self._fail(f"did not answer within {self.work.seconds:g} s")
        elif self._taken and not lives:
            self._fail("left while it was at it: it is no longer connected")

    def take(self, progress: Progress | None) -> None:
        """Take in what the row says; one that was there and is not was lost with its database."""
        if progress is None:
            if self._seen:
                self._fail("cannot be heard: what it was asked was lost in the database")
            return
        self._seen, self._taken = True, progress.taken
        for body in progress.answers:
            self.known += 1
            self._put(answer_of(body))

    @property
    def is_overdue(self) -> bool:
        """Say whether it should have been handed out by now."""
        waits = self._seen and not self._taken and not self._ended
        return waits and self._clock.monotonic() >= self._take_until

    def refuse_untaken(self) -> None:
        """End it: it was withdrawn."""
        self._ended = True
        self._answers.put_nowait(NotTaken(self.work.node))

    def _fail(self, words: str) -> None:
        self._put(Undone(NOT_DONE, f"node {self.work.node!r} {words}"))

    def _put(self, answer: Answer) -> None:
        if not self._ended:
            self._ended = is_last(answer)
            self._answers.put_nowait(answer)
