"""A process that makes children to be killed: quickly, with everything imported already."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEVER = sys.maxsize


@asynccontextmanager
async def nursery(module: str, *words: object, **env: str) -> AsyncGenerator[Process, None]:
    """Start a module of these tests as a nursery; closing its input ends it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.process.{module}", *map(str, words)),
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, **env},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(30):
            await process.wait()


async def worked(
    process: Process,
    order: str = "next",
    after: int = NEVER,
    until: str | None = None,
    *,
    halfway: Callable[[], Awaitable[None]] | None = None,
) -> list[str]:
    """Let a child work, kill it after so many words or that one, and return all that it said.

    ``halfway`` happens after half as many words.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{order}\n".encode())
    said: list[str] = []
    child = 0
    async with asyncio.timeout(900):
        while (text := (await process.stdout.readline()).decode().strip()) != "dead":
            assert text, "the nursery ended"
            if text.startswith("pid "):
                child = int(text.removeprefix("pid "))
            else:
                said.append(text)
            if halfway is not None and len(said) >= after // 2:
                strike, halfway = halfway, None
                await strike()
            over = len(said) >= after or (until is not None and text.startswith(until))
            if child and over:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(child, signal.SIGKILL)
                child, after, until = 0, NEVER, None
    return said
