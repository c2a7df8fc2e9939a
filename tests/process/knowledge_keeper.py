"""A process that keeps what a node knows, again and again, and says what is on its disk.

``PATH`` forks a keeper for every line it is sent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import NoReturn

from bascule import Server
from bascule.model.snapshot import Snapshot
from bascule.node.sync.last_known_good import Knowledge, LastKnownGood

NODE, TOKEN = "east", "bsc_" + "n" * 43
SERVERS = {f"s{number}": Server.stdio(f"s{number}", "true") for number in range(50)}


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def known(revision: int) -> Knowledge:
    snapshot = Snapshot(store_id="a", revision=revision, mark=f"m{revision}", servers=SERVERS)
    return Knowledge(snapshot=snapshot, confirmed_at=float(revision))


async def keep_for_ever(path: Path) -> NoReturn:
    found = LastKnownGood(path, NODE, TOKEN).load()
    revision = found.snapshot.revision if isinstance(found, Knowledge) else 0
    while True:
        revision += 1
        file = LastKnownGood(path, NODE, TOKEN)
        file.keep(known(revision))
        await file.close()
        say(str(revision))


def nursery(path: Path) -> None:
    for _ in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            asyncio.run(keep_for_ever(path))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
