"""Runs a program of a page against a server that was just started, as its reader would."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.node.up_process import serving, token

_SECONDS = 40


async def said(program: str, folder: Path) -> list[str]:
    """Return the lines that a program prints; it has the server's address and a client's token."""
    async with serving(folder) as (_, url):
        client = await token(folder, "--role", "client", "--task", "demo")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "BASCULE_URL": url, "BASCULE_TOKEN": client},
        )
        async with asyncio.timeout(_SECONDS):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()
