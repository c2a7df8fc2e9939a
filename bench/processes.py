"""Processes of a benchmark that speak in lines: started, heard, and ended with it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bench.machine import ROOT

START_SECONDS = 60.0


async def started(words: Sequence[str]) -> Process:
    """Start a program of Python."""
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=PIPE, stdout=PIPE, cwd=ROOT
    )


async def line(process: Process, beginning: bytes, seconds: float = START_SECONDS) -> bytes:
    """Return the next line that begins so."""
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        while said := await process.stdout.readline():
            if said.startswith(beginning):
                return said.strip()
    raise RuntimeError("a process of the benchmark died; its own words are above")


@asynccontextmanager
async def ended(process: Process) -> AsyncGenerator[None]:
    """End a process with the block."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
