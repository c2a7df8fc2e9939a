"""Both ends of the work for nodes, at one replica.

One end asks, and waits for answers; the other hands out what waits for the nodes that follow here,
and tells them when nobody waits any more. Replicas meet in rows alone, so the two ends need not be
at the same one. A bell says that rows may have changed; every two seconds they are looked at
anyway. A node whose stream is replaced, here or at another replica, says what it is still at, and
finishes that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress

from bascule.clock import Clock
from bascule.control.registry.service import RegistryService
from bascule.control.work.hands import Cancelled, Hand
from bascule.control.work.jobs import NOT_DONE, Answer, Job, Undone, body_of, is_last
from bascule.control.work.questions import Question
from bascule.control.work.rows import Reception, Work, WorkRows
from bascule.db.errors import StoreUnavailable
from bascule.lifetime import Lifetime, Tasks

#: How long a piece of work has, from the question to the last answer.
WORK_SECONDS = 50.0
POLL_SECONDS = 2.0
#: How long a node that was at work may be without a stream before it is taken to be gone.
PARTED_SECONDS = 6.0
_SWEEP_SECONDS = 30.0


class WorkChannel(Lifetime):
    """Asks nodes wherever they follow, and serves those that follow here."""

    def __init__(self, rows: WorkRows, service: RegistryService, clock: Clock) -> None:
        self._rows = rows
        self._service = service
        self._clock = clock
        self._tasks = Tasks()
        self._bell = asyncio.Event()
        self._questions: dict[str, Question] = {}
        self._hands: dict[str, Hand] = {}
        #: Works that were handed out here and not finished yet, each with whom it was given to.
        self._handed: dict[str, Hand] = {}
        #: Works that nobody waits for any more.
        self._unwanted: set[str] = set()
        #: Nodes that came, and of which it was not yet looked for what they are not at any more.
        self._came: set[str] = set()
        #: Nodes that left, with the time until which they may come back to finish.
        self._parted: dict[str, float] = {}
        self._swept_at = clock.monotonic()

    async def start(self) -> None:
        """Look after rows from now on."""
        self._tasks.start(self._ring_now_and_then())
        self._tasks.start(self._follow())
        listening = self._rows.listening(self._bell.set)
        if listening is not None:
            self._tasks.start(listening)

    async def close(self) -> None:
        """Stop that; the nodes of this replica may finish at another."""
        await self._tasks.end()
        with suppress(StoreUnavailable):
            await self._flush()

    # --- asking

    def lives(self, node: str) -> bool:
        """Say whether a node follows this replica, or was just seen to follow another."""
        followers = self._service.standing.followers() if self._rows.shared else ()
        return node in self._hands or node in followers

    def living(self) -> frozenset[str]:
        """Return the names of all nodes that can be asked."""
        followers = self._service.standing.followers() if self._rows.shared else ()
        return frozenset(self._hands).union(followers)

    async def ask(self, node: str, job: Job, told: Callable[[Answer], None]) -> Answer:
        """Have a node do something; return its last answer, and tell of those before.

        Raise NotTaken where it was certainly not begun, TooMuchWork and StoreUnavailable.
        """
        work = Work(
            id=secrets.token_hex(16),
            node=node,
            job=body_of(job),
            revision=self._service.view.revision,
            seconds=WORK_SECONDS,
        )
        question = self._questions[work.id] = Question(work, self._clock)
        try:
            await self._rows.add(work)
            self._bell.set()
            while not is_last(answer := await question.next()):
                told(answer)
            return answer
        finally:
            del self._questions[work.id]
            self._unwanted.add(work.id)
            self._bell.set()

    # --- handing out

    @contextmanager
    def handing(
        self, node: str, call: Callable[[], None], works: Iterable[str] = ()
    ) -> Generator[Hand, None, None]:
        """Hand out what waits for a node during the block, once it is ready for it.

        ``call`` is called whenever the hand has something. ``works`` are those that the node was
        handed before and is still at; whatever else it was handed fails. What is not finished at
        the end of the block fails too, unless the node comes back with it soon.
        """
        hand = self._hands[node] = Hand(node, call, self._bell.set)
        self._handed |= dict.fromkeys(works, hand)
        self._came.add(node)
        try:
            yield hand
        finally:
            if self._hands.get(node) is hand:
                del self._hands[node]
                self._came.discard(node)
                self._parted[node] = self._clock.monotonic() + PARTED_SECONDS
            for id in [id for id, given in self._handed.items() if given is hand]:
                del self._handed[id]

    async def answer(self, id: str, node: str, answer: Answer) -> Reception:
        """Take what a node says to its work."""
        last = is_last(answer)
        reception = await self._rows.answer(id, node, body_of(answer), last=last)
        if reception != "foreign" and (last or reception == "unwanted"):
            self._handed.pop(id, None)
        self._bell.set()
        return reception

    # --- looking

    async def _ring_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(POLL_SECONDS)
            self._bell.set()

    async def _follow(self) -> None:
        while True:
            self._bell.clear()
            with suppress(StoreUnavailable):  # the next look may succeed, and deadlines hold
                await self._look()
            await self._bell.wait()

    async def _look(self) -> None:
        now = self._clock.monotonic()
        self._parted = {node: until for node, until in self._parted.items() if until > now}
        for question in self._questions.values():
            node = question.work.node
            question.judge(lives=node in self._parted or self.lives(node))
        await self._flush()
        if self._came:
            await self._fail_forgotten()
        if self._questions:
            await self._read()
        if self._hands:
            await self._give()
        if self._handed:
            await self._cancel()
        if self._clock.monotonic() - self._swept_at >= _SWEEP_SECONDS:
            self._swept_at = self._clock.monotonic()
            await self._rows.sweep()

    async def _flush(self) -> None:
        """Write down what could not be waited for when it came up."""
        while self._unwanted:
            ids = [*self._unwanted]
            await self._rows.remove(ids)
            self._unwanted.difference_update(ids)

    async def _fail_forgotten(self) -> None:
        """Fail what nodes that came were handed before, and are not at any more."""
        came = {node: self._hands[node] for node in self._came}
        for id, node in (await self._rows.handed(came)).items():
            hand = came[node]
            if self._hands.get(node) is not hand or self._handed.get(id) is hand:
                continue  # it left again, or is at it
            words = f"node {node!r} left while it was at it, and came back without it"
            await self._rows.answer(id, node, body_of(Undone(NOT_DONE, words)), last=True)
            self._bell.set()
        self._came -= {node for node, hand in came.items() if self._hands.get(node) is hand}

    async def _read(self) -> None:
        """Hand on what was answered to questions of this replica."""
        asked = {**self._questions}
        found = await self._rows.progress({id: one.known for id, one in asked.items()})
        for id, question in asked.items():
            question.take(found.get(id))
            if question.is_overdue and await self._rows.withdraw(id):
                question.refuse_untaken()

    async def _give(self) -> None:
        """Take what waits for nodes that are ready here, and hand it to them."""
        waiting = await self._rows.waiting()
        hands = [self._hands[node] for node in waiting if node in self._hands]
        for hand in hands:
            hand.is_awaited = not hand.is_ready
        ready = [hand.node for hand in hands if hand.is_ready]
        for work in await self._rows.take(ready) if ready else ():
            hand = self._hands.get(work.node)
            if hand is None:
                continue  # it left just now: this fails when it comes back, or does not
            if self._service.view.revision < work.revision:
                with suppress(StoreUnavailable):  # what the node has is tried then
                    await self._service.catch_up()
            self._handed[work.id] = hand
            hand.give(work)

    async def _cancel(self) -> None:
        """Tell nodes of works that nobody waits for any more."""
        asked = [*self._handed]
        wanted = await self._rows.wanted(asked)
        for id in asked:
            hand = None if id in wanted else self._handed.pop(id, None)
            if hand is not None:
                hand.give(Cancelled(id))
