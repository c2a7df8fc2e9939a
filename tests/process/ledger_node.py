"""A node with a ledger, in a process of its own that is going to be killed.

``nursery DATA COUNTED`` forks a node for every line it is sent, so that killing many does not mean
importing everything many times. Each has a counting server, which writes every execution to the
file COUNTED before it answers, and says a word at every commit, checkpoint and answered call.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path
from typing import NoReturn

from bascule import Bridge, Server, Session
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.db.sqlite import plain_commit
from bascule.model.server import ServerRecord
from bascule.testing.server import ScriptedServer, do

KEY = bytes(range(32))
AT_ONCE = 16


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def said_commit(connection: sqlite3.Connection, /) -> None:
    """Commit, with a word before and one after it."""
    say("commit")
    plain_commit(connection)
    say("committed")


def counting_server(counted: Path) -> ServerRecord:
    script = ScriptedServer(behaviours={"count": do("ledger", path=str(counted))})
    command, args = script.command
    return Server.stdio("counter", command, *args, budgets={"max_concurrency": AT_ONCE})


async def call_for_ever(session: Session, who: int) -> NoReturn:
    number = 0
    while True:
        number += 1
        text = f"{os.getpid()}-{who}-{number}"
        (await session.call("mcp__counter__count", {"text": text})).unwrap()
        say(f"called {text}")


async def sign_for_ever(ledger: SqliteLedger) -> NoReturn:
    while True:
        if await ledger.checkpoint() is None:
            await asyncio.to_thread(os.sched_yield)
        say("signed")


async def serve(data: Path, counted: Path) -> None:
    ledger = await SqliteLedger(data, key=KEY, commit=said_commit).open()
    say("open")
    async with (
        Bridge.open([counting_server(counted)], ledger=ledger) as bridge,
        bridge.session(server_ids=["counter"], caller="killed") as session,
    ):
        await session.tools()
        callers = (call_for_ever(session, who) for who in range(AT_ONCE))
        await asyncio.gather(sign_for_ever(ledger), *callers)


def nursery(data: Path, counted: Path) -> None:
    for _ in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            asyncio.run(serve(data, counted))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    nursery(Path(sys.argv[1]), Path(sys.argv[2]))
