"""A process that writes to a registry and says what was acknowledged, until it is stopped.

``nursery PATH`` forks a writer for every line it is sent, so that killing many writers does not
mean importing everything many times. ``until-full PATH LIMIT`` writes until nothing more fits; a
limit of 0 leaves that to the file system.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from typing import NoReturn

from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Author, Retention, Write
from bascule.db.errors import StoreUnavailable
from bascule.model.server import ServerRecord, Stdio
from bascule.model.task import TaskRecord

BY = Author("writer")
KEPT = 20


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def pair(number: int, word: str) -> list[Write]:
    """Two objects that always say the same."""
    name = f"s{number % 5}"
    command = Stdio(command="true")
    server = ServerRecord(server_id=name, transport="stdio", stdio=command, display_name=word)
    task = TaskRecord(task_id=name, name=word)
    return [
        Write(kind="server", id=name, record=server),
        Write(kind="task", id=name, record=task),
    ]


async def write_for_ever(path: str) -> NoReturn:
    store = await SqliteStore(path).open()
    number = (await store.head()).revision
    while True:
        number += 1
        change = await store.write(pair(number, f"{os.getpid()}-{number}"), BY)
        assert change is not None
        say(f"{change.revision} {os.getpid()}-{number}")
        if number % 7 == 0:
            await store.compact(Retention(changes=KEPT))


def nursery(path: str) -> None:
    for _ in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            asyncio.run(write_for_ever(path))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


async def until_full(path: str, limit: int) -> None:
    store = await SqliteStore(path).open()
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    failed = 0
    number = 0
    while failed < 3:
        number += 1
        word = f"{number}-".ljust(150, "x")
        try:
            change = await store.write(pair(number, word), BY)
        except StoreUnavailable as error:
            failed += 1
            say(f"failed {error}")
        else:
            assert change is not None
            say(f"{change.revision} {word}")
    view = await store.view()
    say(f"reads {view.revision} {len(view.objects)}")
    await store.close()


if __name__ == "__main__":
    if sys.argv[1] == "nursery":
        nursery(sys.argv[2])
    else:
        asyncio.run(until_full(sys.argv[2], int(sys.argv[3])))
