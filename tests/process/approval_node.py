"""A node that asks, decides and claims, in a process of its own that is going to be killed.

``nursery DATA COUNTED CALLS [DSN]`` forks a node for every line ``DEFINITION SEED DECIDES`` that it
is sent. Nodes on one data directory, or replicas on one database, race: all of them make the same
calls, decide on the same questions and claim the same approvals. The counting server writes every
execution to the file COUNTED.DEFINITION before it answers. Each node says a word before and after
every commit, what it was told, and that its database was away.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from bascule import Bridge, Server
from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import ApprovalRefused, Decision
from bascule.audit.approvals import Approvals, LedgerStore
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.db.driver import Connection
from bascule.db.errors import StoreUnavailable
from bascule.db.postgres import Postgres, Work
from bascule.model.approval import RETURN, Approval, Asking, Decider, Verb
from bascule.model.outcome import Outcome, Success
from bascule.model.server import ServerRecord
from bascule.testing.server import ScriptedServer, do, tool
from tests.audit.questions import KeySealer
from tests.process.ledger_node import AT_ONCE, KEY, said_commit, say

T = TypeVar("T")
EVERY = ApprovalFilter(limit=100_000)
PENDING = ApprovalFilter(limit=100_000, states=("pending",))
DEFINITIONS = ("plain", "changed")
NAME = "mcp__counter__count"


def counting_server(counted: Path, definition: str) -> ServerRecord:
    script = ScriptedServer(
        tools=[tool("count", description=f"Counts. It is {definition}.")],
        behaviours={"count": do("ledger", path=f"{counted}.{definition}")},
    )
    command, args = script.command
    return Server.stdio(
        "counter",
        command,
        *args,
        budgets={"max_concurrency": AT_ONCE},
        approval_policy={"default": "always"},
    )


def verb_for(question: Approval, before: list[Approval]) -> Verb:
    """Approve each call once, whatever becomes of that, and deny a few of them."""

    def same(one: Approval) -> bool:
        mine, other = question.call, one.call
        names = (mine.arguments_digest, mine.definition_digest)
        return names == (other.arguments_digest, other.definition_digest)

    decided = [one.decided for one in before if same(one)]
    given = any(one is not None and one.verb == "approve" for one in decided)
    return "deny" if given or int(question.call.arguments_digest, 16) % 5 == 0 else "approve"


async def decide_for_ever(approvals: Approvals) -> NoReturn:
    while True:
        try:
            await decide_all(approvals)
        except (LedgerUnavailable, StoreUnavailable):
            say("away")
        await approvals.moved(0.05)


async def decide_all(approvals: Approvals) -> None:
    by = Decider(name=f"boss-{os.getpid()}", token_id="tok-boss")
    questions = await approvals.listing(PENDING)
    before = await approvals.listing(EVERY) if questions else []
    for question in questions:
        verb = verb_for(question, before)
        decision = Decision(verb=verb, by=by, digest=question.digest)
        try:
            decided = await approvals.decide(question.id, decision)
        except ApprovalRefused as refused:
            say(f"refused {refused.code}")
        else:
            say(f"decided {decided.id} {decided.state}")


class Caller:
    """Makes one call until it ran or was denied, and tries others with its approval."""

    def __init__(self, bridge: Bridge, number: int, rng: random.Random) -> None:
        self._bridge = bridge
        self._number = number
        self._rng = rng

    async def call(self, text: str, who: str, asking: Asking = RETURN) -> Outcome:
        async with self._bridge.session(server_ids=["counter"], caller=who) as session:
            return await session.call(NAME, {"text": text}, approval=asking)

    async def once(self) -> bool:
        """Call; say what came of it and whether that was the end."""
        who, text = f"c{self._number}", f"call-{self._number}"
        outcome = await self.call(text, who)
        if isinstance(outcome, Success):
            say(f"called {text}")
            return True
        say(f"{outcome.error.code} {text}")
        id = (outcome.error.details or {}).get("approval_id")
        if isinstance(id, str) and self._rng.random() < 0.1:
            again = Asking(wait=0.0, approval_id=id)
            await self.call(f"stolen-{text}", "thief", again)
            if self._rng.random() < 0.3:
                await self.call(f"altered-{text}", who, again)
            say("tried")
        return outcome.error.code == "mcp_approval_denied"


async def call_all(bridge: Bridge, approvals: Approvals, calls: int, rng: random.Random) -> None:
    left = [Caller(bridge, number, rng) for number in range(calls)]
    while left:
        rng.shuffle(left)
        part, rest = left[:AT_ONCE], left[AT_ONCE:]
        ended = await asyncio.gather(*(one.once() for one in part))
        still = [one for one, over in zip(part, ended, strict=True) if not over]
        left = rest + still
        if still:
            await approvals.moved(0.01)


class SaidPostgres(Postgres):
    """Says a word before and after every commit, as ``said_commit`` does."""

    async def write(self, work: Work[T], *, seconds: float | None = None) -> T:
        async def said(connection: Connection) -> T:
            result = await work(connection)
            say("commit")
            return result

        written = await super().write(said, seconds=seconds)
        say("committed")
        return written


@asynccontextmanager
async def opened(data: Path, dsn: str | None) -> AsyncGenerator[JournaledLedger, None]:
    """Open the ledger of a data directory, or that of a replica."""
    async with AsyncExitStack() as stack:
        if dsn is None:
            ledger = await SqliteLedger(data, key=KEY, commit=said_commit).open()
        else:
            postgres = await SaidPostgres(dsn).open()
            stack.push_async_callback(postgres.close)
            ledger = await PostgresLedger(postgres, data, key=KEY, node=data.name).open()
        stack.push_async_callback(ledger.close)
        yield ledger


async def serve(data: Path, counted: Path, calls: int, line: str, dsn: str | None) -> None:
    try:
        async with opened(data, dsn) as ledger:
            await work(ledger, counted, calls, line)
    except StoreUnavailable:
        say("away")


async def work(ledger: JournaledLedger, counted: Path, calls: int, line: str) -> None:
    definition, seed, decides = line.split()
    store = await LedgerStore(ledger, KeySealer()).open()
    approvals = Approvals(store, ApprovalSettings())
    say("open")
    server = counting_server(counted, definition)
    async with Bridge.open([server], ledger=ledger, approver=approvals) as bridge:
        async with bridge.session(server_ids=["counter"]) as session:
            [listed] = await session.tools()
        say(f"definition {definition} {listed.digest}")
        deciding = asyncio.create_task(decide_for_ever(approvals)) if decides == "yes" else None
        working = asyncio.create_task(
            call_all(bridge, approvals, calls, random.Random(f"{seed}{os.getpid()}"))
        )
        tasks = {working} if deciding is None else {working, deciding}
        await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if working.done() and not working.cancelled() and working.exception() is None:
            say("all")
        elif not working.cancelled():
            say(f"broken {working.exception()!r}")
    await approvals.close()
    store.close()


def nursery(data: Path, counted: Path, calls: int, dsn: str | None = None) -> None:
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            asyncio.run(serve(data, counted, calls, line, dsn))
            os._exit(0)
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    nursery(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
