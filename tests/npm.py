"""Scripts for Node that tests let run, and what they say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from checks.npm import NODE


async def play(seconds: float, *words: str | Path) -> Any:
    """Let Node run a script, and return the JSON that it says."""
    process = await asyncio.create_subprocess_exec(
        *(NODE, *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            said, complained = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, complained.decode("utf-8", "replace")
    return json.loads(said)
