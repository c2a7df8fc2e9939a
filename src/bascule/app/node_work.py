"""What a node of its own process does for its control plane: trials of servers, and previews.

Each piece of work has a deadline, and few are done at once. One ends early when its node is told
that nobody waits for it. The stream that it came on may end meanwhile: answers go to any replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress

from bascule.app.local_node import TRIAL_SECONDS, LocalNode
from bascule.audit.log_lines import say
from bascule.client.followed import WorkOrder
from bascule.client.http import ApiError, Unreachable
from bascule.client.work import Answers, Asks
from bascule.clock import Clock
from bascule.errors import BasculeError, ServerUnavailable
from bascule.lifetime import Lifetime
from bascule.model.json import JsonObject
from bascule.node.assembly import Bridge
from bascule.wire.api.trials import TrialStep

#: How many are done at once, and how many may be there.
MOST_AT_ONCE = 4
MOST = 16
#: How long before the deadline a trial ends, so that its answer comes in time.
_ANSWER_SECONDS = 3.0
#: The pause before a last answer that got lost is said again.
_AGAIN_SECONDS = 0.5
_NOT_DONE = "no_node"
#: What a control plane says that takes answers again soon, or another replica of which does.
_PASSING = frozenset({"shutting_down", "store_unavailable"})
_CROWDED = "this node has as much to try as it takes at once"
logger = logging.getLogger("bascule.node")


class NodeWorker(Lifetime):
    """Does what the control plane asks, with the node's own bridge."""

    def __init__(
        self,
        source: Asks,
        bridge: Bridge,
        clock: Clock,
        *,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Answer through a source; ``catch_up`` puts in force what was just written."""
        self._source = source
        self._bridge = bridge
        self._clock = clock
        self._catch_up = catch_up
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._works: dict[str, asyncio.Task[None]] = {}

    def works(self) -> list[str]:
        """Return the ids of what is under way (``RpcSource.at_work``)."""
        return [*self._works]

    def order(self, order: WorkOrder) -> None:
        """Begin a piece of work, or leave it (``RpcSource.on_work``)."""
        if order.job == "cancel":
            if order.id in self._works:
                self._works[order.id].cancel()
        elif order.id not in self._works:
            crowded = "" if len(self._works) < MOST else _CROWDED
            task = asyncio.create_task(self._do(order, order.problem or crowded))
            self._works[order.id] = task
            task.add_done_callback(lambda _: self._works.pop(order.id, None))

    async def close(self) -> None:
        """Leave all work; what was begun for it has ended then."""
        tasks = [*self._works.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, order: WorkOrder, problem: str) -> None:
        answers = Answers(self._source, order.id)
        with suppress(BasculeError, TimeoutError):  # whoever asked knows when it is too late
            async with asyncio.timeout(order.seconds):
                if problem:
                    await answers.failure(_NOT_DONE, problem)
                    return
                async with self._places:
                    await self._answer(order, answers)

    async def _answer(self, order: WorkOrder, answers: Answers) -> None:
        what = order.server_id or (order.record and order.record.server_id)
        say(logger, logging.INFO, f"{order.job} of server {what!r} for the control plane")
        seconds = max(1.0, order.seconds - _ANSWER_SECONDS)
        node = LocalNode(
            self._bridge,
            self._clock,
            min(TRIAL_SECONDS, seconds),
            fetch_seconds=seconds,
            catch_up=self._catch_up,
        )
        if order.job == "preview":
            await self._preview(node, order.server_id, answers)
        else:
            await _Trial(node, order, answers, self._clock, self._definitions).run()

    async def _preview(self, node: LocalNode, server_id: str, answers: Answers) -> None:
        try:
            tools = await node.preview(server_id)
        except ServerUnavailable as error:
            code, words = error.reason, str(error)
            await _said(lambda: answers.failure(code, words), self._clock)
        else:
            listed = self._definitions(server_id)
            await _said(lambda: answers.previews(server_id, tools, listed), self._clock)

    def _definitions(self, server_id: str) -> list[JsonObject]:
        """Return the tools of a server as it lists them, fit to be read."""
        return [{**one.definition} for one in self._bridge.known_tools().get(server_id, ())]


class _Trial:
    """One trial; its steps are told while it goes on, in their order."""

    def __init__(
        self,
        node: LocalNode,
        order: WorkOrder,
        answers: Answers,
        clock: Clock,
        definitions: Callable[[str], list[JsonObject]],
    ) -> None:
        self._definitions = definitions
        self._node = node
        self._order = order
        self._answers = answers
        self._clock = clock
        self._steps: asyncio.Queue[TrialStep | None] = asyncio.Queue()

    async def run(self) -> None:
        """Do it and say how it went; leave it once nobody waits."""
        order, tell = self._order, self._steps.put_nowait
        if order.record is None:
            trying = self._node.test(order.server_id, tell)
        else:
            trying = self._node.try_out(order.record, tell)
        trial = asyncio.ensure_future(trying)
        trial.add_done_callback(lambda _: self._steps.put_nowait(None))
        try:
            if await self._told():
                found = await trial
                # Those of a draft are not known: nothing of it stays.
                listed = self._definitions(order.server_id) if found.ok else []
                await _said(lambda: self._answers.trial(found, listed), self._clock)
        finally:
            trial.cancel()
            await asyncio.wait({trial})

    async def _told(self) -> bool:
        """Tell of steps until the trial ends; say whether somebody waits for it."""
        while (step := await self._steps.get()) is not None:
            with _unless_passing():  # the last answer has all steps
                if not await self._answers.step(step):
                    return False
        return True


async def _said(answer: Callable[[], Awaitable[bool]], clock: Clock) -> None:
    """Give a last answer, again if it got lost; the deadline of the work ends that."""
    while True:
        with _unless_passing():
            await answer()
            return
        await clock.sleep(_AGAIN_SECONDS)


@contextmanager
def _unless_passing() -> Generator[None, None, None]:
    """Raise what an answer is refused with, unless it is worth saying again."""
    try:
        yield
    except Unreachable:
        return
    except ApiError as error:
        if error.code not in _PASSING:
            raise
