"""Nothing is left of confined servers: after many of them, and when the node is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bascule.model.sandbox import BEST_FIRST, Level
from bascule.node.pool.process.warden import Warden
from tests.flow.processes import vanished
from tests.process.isolation_table import users
from tests.process.starting_node import cgroups
from tests.scale import SOAK, scaled
from tests.waits import SOON_SECONDS, until

REPOSITORY = Path(__file__).parents[2]
SECONDS = 300.0 if SOAK else 60.0


async def needs(level: Level) -> None:
    """Skip where a level does not work, with the reason found."""
    warden = Warden()
    reason = await warden.why_not(level)
    await warden.close()
    if reason:
        pytest.skip(f"{level} does not work on this machine: {reason}")


@contextlib.asynccontextmanager
async def node(
    mode: str, level: Level, count: int, word: str, who: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a node of its own; whatever becomes of it, its folder goes."""
    words = mode, level, str(count), word, users()[who]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.process.starting_node", *words),
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.to_thread(clear_away, word)


def clear_away(word: str) -> None:
    for folder in Path("/var/tmp").glob(f"starting-{word}-*"):
        shutil.rmtree(folder)


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("who", users())
@pytest.mark.parametrize("level", ["best", *BEST_FIRST])
@pytest.mark.requirement("process:sandbox:no-leftovers")
async def test_many_starts_and_ends_leave_nothing(level: Level, who: str):
    await needs("limits" if level == "best" else level)
    word = secrets.token_hex(8)
    async with node("many", level, scaled(100), word, who) as process:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
        assert process.returncode == 0
        found = json.loads(output)
    assert found["after"] == found["before"]
    assert found["after"]["processes"] == found["after"]["cgroups"] == []
    await vanished(word, seconds=SOON_SECONDS)


@pytest.mark.parametrize("who", users())
@pytest.mark.parametrize("level", BEST_FIRST)
@pytest.mark.requirement("process:sandbox:no-leftovers")
async def test_a_killed_node_leaves_nothing_at_any_level(level: Level, who: str):
    await needs(level)
    word = secrets.token_hex(8)
    async with node("one", level, 1, word, who) as process:
        facts = await told(process)
        os.kill(facts["node"], signal.SIGKILL)
        await vanished(word, seconds=SOON_SECONDS)
        await until(lambda: not cgroups(facts["owner"]))


@pytest.mark.parametrize("who", users())
@pytest.mark.parametrize("level", ["namespaces", "bwrap"])
@pytest.mark.requirement("process:sandbox:no-leftovers")
async def test_node_and_warden_killed_at_once_leave_no_process_in_a_namespace(
    level: Level, who: str
):
    await needs(level)
    word = secrets.token_hex(8)
    async with node("one", level, 1, word, who) as process:
        facts = await told(process)
        for pid in (facts["warden"], facts["node"]):
            os.kill(pid, signal.SIGKILL)
        await vanished(word, seconds=SOON_SECONDS)
        for folder in sorted(cgroups(facts["owner"]), reverse=True):  # empty: nobody is left to
            await until(lambda folder=folder: removed(Path(folder)))


async def told(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(SOON_SECONDS):
        facts: dict[str, Any] = json.loads(await process.stdout.readline())
    return facts


def removed(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()
