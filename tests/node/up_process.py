"""A real ``bascule up``, and tokens for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path


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
    process = await started("tokens", "create", *words, "--json", "--data-dir", str(data))
    async with asyncio.timeout(20):
        out, _ = await process.communicate()
    return json.loads(out)["token"]
