"""What goes on while a worker of ``bascule up`` is killed again and again; real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from tests.flow.up_process import Up, run
from tests.flow.worker_kept import (
    AT_ONCE,
    CHAT,
    held_turn,
    parked,
    parked_turn,
    rest_of_output,
    session_goes_on,
)
from tests.flow.worker_lines import Line, lines_to, two_workers, workers
from tests.waits import until

KILLS = 3


async def pids_of(up: Up) -> dict[int, int]:
    """Return the processes of the workers, by number."""
    code, out, err = await run("node", "status", "--json", "--data-dir", str(up.data))
    assert code == 0, err
    return {one["number"]: one["pid"] for one in json.loads(out)["workers"]}


async def killed(up: Up, others: set[int], line: Line) -> None:
    """Kill the one worker that is not one of the others, whenever all of them serve."""
    main, gone = psutil.Process(up.process.pid), set[int]()

    def another() -> int:
        return next(iter({child.pid for child in main.children()} - others - gone), 0)

    async def is_whole() -> bool:
        return (await line.ask("GET", "/healthz"))[1]["status"] == "ok"

    for _ in range(KILLS):
        one = await until(another)
        await until(is_whole)
        os.kill(one, signal.SIGKILL)
        gone.add(one)
    await until(another)
    await until(is_whole)


@pytest.mark.requirement("workers:owned-ids")
@pytest.mark.requirement("workers:restart")
async def test_what_two_workers_hand_over_goes_on_while_a_third_is_killed_again_and_again(
    tmp_path: Path,
):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(workers(tmp_path, 3, **AT_ONCE))
        lines = await lines_to(up, token, stack, 3)
        here, there = lines[1], lines[2]
        pids = await pids_of(up)
        own = (await lines_to(up, token, stack, 3))[1]
        killing = asyncio.create_task(killed(up, {pids[1], pids[2]}, own))
        rounds = 0
        while not killing.done():
            await session_goes_on(here, there, tmp_path / "journal")
            await rest_of_output(here, there)
            await held_turn(here, there)
            await parked_turn(here, there, up)
            rounds += 1
        await killing
        assert rounds > 1
        assert (await pids_of(up))[3] != pids[3]
        assert len(await lines_to(up, token, stack, 3)) == 3
        assert await up.end() == 0


@pytest.mark.requirement("workers:parked-kept")
async def test_a_turn_that_a_killed_worker_parked_goes_on_when_that_is_back(tmp_path: Path):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path, **AT_ONCE))
        lines = await lines_to(up, token, stack)
        here, there = lines[1], lines[2]
        turn = await parked(here, there, up)
        os.kill((await pids_of(up))[1], signal.SIGKILL)

        async def goes_on() -> str:
            """Ask as a caller does who is told to come again."""
            status, answer = await there.ask("POST", CHAT, turn)
            assert status in {200, 503}, answer
            return answer["choices"][0]["message"]["content"] if status == 200 else ""

        assert "careful said: approved" in await until(goes_on)
        assert await up.end() == 0
