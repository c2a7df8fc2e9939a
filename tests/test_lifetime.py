"""What owners do with their tasks when they end."""

from __future__ import annotations

import asyncio

from bascule.lifetime import Tasks, cancelled


async def test_a_task_that_lost_its_cancellation_is_cancelled_again():
    """As a driver loses it that waits for something else at that moment."""
    began, lost = asyncio.Event(), 0

    async def deaf() -> None:
        nonlocal lost
        began.set()
        while lost < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(deaf())
    await began.wait()
    async with asyncio.timeout(30):
        await cancelled([task], again=0.01)
    assert (task.cancelled(), lost) == (True, 2)


async def test_what_tasks_raise_at_their_end_is_nobodys():
    async def failing() -> None:
        raise ValueError("nobody asks")

    async def forever() -> None:
        await asyncio.Event().wait()

    tasks = Tasks()
    task = tasks.start(failing())
    await asyncio.wait({task})
    await cancelled([task])
    tasks.start(forever())
    async with asyncio.timeout(30):
        await tasks.end()
