"""Whether a worker still answers, counted in questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.app.worker_pulse import Pulse
from bascule.lifetime import cancelled

SECONDS = 30.0
STEP = 5.0


class StepClock:
    """A ``Clock`` whose waits end one at a time, each as late as a test says."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._waits: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    def monotonic(self) -> float:
        return self._elapsed

    now = monotonic

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._waits.put_nowait(woken)
        await woken

    async def step(self, seconds: float) -> None:
        """End the wait under way, so many seconds after it began."""
        woken = await self._waits.get()
        self._elapsed += seconds
        woken.set_result(None)


class Worker:
    """One that is asked, and answers as long as it is told to."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.pulse = Pulse(self._asked, SECONDS, self.clock)
        self.answers = True
        self.questions = 0

    def _asked(self) -> None:
        self.questions += 1
        if self.answers:
            self.pulse.heard()

    async def goes_by(self, count: int, seconds: float = STEP) -> None:
        """Let time go by, a question at a time."""
        for _ in range(count):
            await self.clock.step(seconds)


@asynccontextmanager
async def asked(worker: Worker) -> AsyncGenerator[asyncio.Task[None], None]:
    task = asyncio.create_task(worker.pulse.silence())
    try:
        yield task
    finally:
        await cancelled([task])


@pytest.mark.requirement("workers:hung")
async def test_a_worker_that_stops_answering_is_silent_after_its_seconds():
    worker = Worker()
    async with asked(worker) as silence:
        await worker.goes_by(20)
        assert worker.questions == 20
        worker.answers = False
        await worker.goes_by(6)
        await silence
    assert worker.questions == 26


@pytest.mark.requirement("workers:hung")
async def test_a_sleep_of_the_whole_machine_is_no_silence():
    worker = Worker()
    async with asked(worker) as silence:
        await worker.goes_by(1)
        worker.answers = False  # it had no turn either
        await worker.goes_by(3, seconds=100_000.0)
        worker.answers = True
        await worker.goes_by(20)
        assert not silence.done()
    assert worker.clock.monotonic() > 300_000


async def test_a_worker_that_is_still_being_loaded_has_longer():
    worker = Worker()
    worker.answers = False
    async with asked(worker) as silence:
        await worker.goes_by(24)
        await silence
    assert worker.questions == 24
