"""A real ``bascule up``, and tokens for it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.served import command


async def started(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bascule",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ,
    )


@asynccontextmanager
async def serving(data: Path) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    process = await started("up", "--port", "0", "--data-dir", str(data))
    try:
        assert process.stdout is not None
        line = b""
        async with asyncio.timeout(20):
            while not line.startswith(b"Bascule serves at"):
                line = await process.stdout.readline()
                assert line, "it ended before it served"
        yield process, line.decode().split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def token(data: Path, *words: str) -> str:
    created = ("tokens", "create", *words, "--json", "--data-dir", str(data))
    return (await asyncio.to_thread(command, *created)).json["token"]
