"""Asking the person at the terminal."""

from __future__ import annotations

import asyncio
import sys
import termios

ANSWER_SECONDS = 600.0
YES = ("y", "yes")
NO = ("n", "no")


def somebody_is_there() -> bool:
    """Say whether a question would be seen, and could be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def answer_to(question: str) -> str:
    """Ask, and return the answer in small letters; what was typed before is none of it."""
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    print(f"{question} ", end="", file=sys.stderr, flush=True)
    return (await _line()).strip().lower()


async def _line() -> str:
    """Wait for a line without holding up the loop, so that Ctrl-C ends the wait at once."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await ready.wait()
    except TimeoutError:
        return ""
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
