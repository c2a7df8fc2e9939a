"""What every client written in Python is asked to do, and how it says what came of it.

A driver reads its task as one line of JSON and writes its report as one. It runs on whatever
environment its client needs, so this module wants nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

OnProgress = Callable[[float, float | None], None]


@dataclass(frozen=True)
class Task:
    """What a driver is given."""

    url: str
    token: str
    prefix: str  # before the names of the tools
    arrived: str  # a pipe: the server writes to it when a call of ``wait`` is there
    cancelled: str  # another: it writes to this one when that call is cancelled
    gate: str  # a file: once it exists, the server goes on with ``steps``
    steps: list[str]
    era: str = "auto"
    programs: dict[str, str] | None = None  # what a driver has to start

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


class Client(ABC):
    """One client, connected. A step that it has no way to do is answered with None."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def version(self) -> str | None:
        """The version of the protocol that was agreed on, where the client tells."""
        return None

    @abstractmethod
    def connected(self) -> AbstractAsyncContextManager[object]: ...

    @abstractmethod
    async def names(self) -> list[str]: ...

    @abstractmethod
    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool; raise when it failed, whichever way."""

    async def watched(self, name: str, on_progress: OnProgress) -> str | None:
        """Call a tool and hear of its progress."""
        del name, on_progress
        return None

    async def cancelled(self, name: str) -> str | None:
        """Call a tool, and give it up once it is at work."""
        call = asyncio.create_task(self.call(name, {}))
        await self.arrived()
        call.cancel()
        return await self.given_up(call)

    async def changed(self, change: str) -> list[str] | None:
        """Call a tool that changes the list, wait for word of it, and list again."""
        del change
        return None

    async def arrived(self) -> None:
        await asyncio.to_thread(Path(self.task.arrived).read_bytes)

    async def given_up(self, call: asyncio.Task[str]) -> str:
        """Return what the server has to say of a call that was given up, before anything else."""
        await asyncio.wait([call])
        if not call.cancelled():
            return f"answered: {call.result()}"
        return await asyncio.to_thread(Path(self.task.cancelled).read_text, encoding="ascii")


async def told(client: Client, step: str) -> object:
    """Do one step, and return what the test is to see of it."""
    prefix = client.task.prefix
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "list": client.names,
        "call": lambda: client.call(f"{prefix}echo", {"text": "grüß Gott ☃"}),
        "error": lambda: failure(client, f"{prefix}fail"),
        "unknown": lambda: failure(client, f"{prefix}nobody"),
        "progress": lambda: progress(client, f"{prefix}steps"),
        "cancel": lambda: client.cancelled(f"{prefix}wait"),
        "change": lambda: client.changed(f"{prefix}grow"),
        "pause": lambda: after_a_pause(client),
    }
    return await steps[step]()


async def after_a_pause(client: Client) -> str:
    say({"paused": True})
    await asyncio.to_thread(sys.stdin.readline)
    return await client.call(f"{client.task.prefix}echo", {"text": "again"})


async def progress(client: Client, name: str) -> list[object] | None:
    """Call a tool that ends only once its caller has seen it come to its last step."""
    seen: list[object] = []

    def see(done: float, total: float | None) -> None:
        seen.append([done, total])
        if done == total:
            Path(client.task.gate).touch()

    said = await client.watched(name, see)
    return None if said is None else [*seen, said]


async def failure(client: Client, name: str) -> str:
    try:
        return f"answered: {await client.call(name, {})}"
    except Exception as error:  # noqa: BLE001 - each client has its own
        return str(error)


def say(report: object) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def report(client: Client) -> dict[str, object]:
    """Go through the steps; without any, say why it could not so much as list."""
    try:
        async with client.connected():
            if not client.task.steps:
                return {"refused": f"listed: {await client.names()}"}
            said = {step: await told(client, step) for step in client.task.steps}
            return {"version": client.version, **said}
    except Exception as error:
        if client.task.steps:
            raise
        return {"refused": "\n".join(reasons(error))}


def reasons(error: BaseException) -> list[str]:
    """Return what all went wrong, also inside groups."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return [f"{type(error).__name__}: {error}", *chain.from_iterable(map(reasons, inner))]


def main(kind: Callable[[Task], Client]) -> None:
    say(asyncio.run(report(kind(Task(**json.loads(sys.stdin.readline()))))))


class Bell:
    """Word of a changed list."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def hear(self, message: Any) -> None:
        """Take a message of the server's, as the message handlers of mcp do."""
        if type(getattr(message, "root", message)).__name__ == "ToolListChangedNotification":
            self._rung.set()

    async def rung(self) -> None:
        await self._rung.wait()


def text_of(result: Any) -> str:
    """Return the text of a result, or raise it where it is an error: as mcp 1 and 2 name it."""
    text = "".join(block.text for block in result.content)
    failed = result.isError if hasattr(result, "isError") else result.is_error
    if failed:
        raise RuntimeError(text)
    return text


@asynccontextmanager
async def nothing() -> AsyncGenerator[None]:
    yield
