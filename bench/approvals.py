"""Approvals: a call that needs none costs what it did, and what one costs that was approved.

A session that needs approval and one that needs none take turns in one process, each over a ledger
on disk of its own. What is asked and decided beforehand is not counted: the call finds its
approval, claims it and leaves. The claim waits for the disk, so the goal is for a server of the
official SDK; over the floor server, which does nothing, it is most of the call, and only shown.
``BASCULE_BENCH_QUICK=1`` makes everything short.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from timeit import default_timer
from types import FrameType

import uvloop

from bascule import Bridge, Server
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import Decision
from bascule.audit.approvals import Approvals, LedgerStore
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.control.envelope import decrypted, encrypted
from bascule.model.approval import Decider
from bench.ledger_clients import kept, opened
from bench.machine import disk_under
from bench.rounds import Judge
from bench.serving import AT_ONCE, Call, turns
from bench.stdio_clients import bascule, command
from bench.table import Row, at_most

NAME = "approvals"
QUICK = os.environ.get("BASCULE_BENCH_QUICK") == "1"
ROUNDS = 2 if QUICK else 12
TURNS = 50 if QUICK else 200
CROWD = (2 if QUICK else 5) * AT_ONCE
COUNTED = 300
#: What a call entered before there were approvals, by where its ledger is.
ENTERED = {"in memory": 54, "on disk": 73}
TIMES = 3
#: Calls the tool with a text.
Calling = Callable[[str], Awaitable[bool]]
#: Has calls of these texts approved.
Approve = Callable[[list[str]], Awaitable[None]]


def run() -> list[Row]:
    """Count what a call enters that needs no approval, then measure one that was approved."""
    where = disk_under(Path(gettempdir()))
    return [
        uvloop.run(entered("in memory", bascule("floor"))),
        uvloop.run(entered("on disk", kept("floor"))),
        *uvloop.run(beside("sdk", partial(at_most, goal=TIMES), f"SDK server, {where}")),
        *uvloop.run(beside("floor", Row, f"floor server, {where}")),
    ]


async def entered(where: str, client: AbstractAsyncContextManager[Call]) -> Row:
    """Count the Python functions that the usual call enters; now and then one does more."""
    seen, counts = 0, Counter[int]()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event == "call"

    async with client as call:
        await turns(call, COUNTED)
        for _ in range(COUNTED):
            seen = 0
            sys.setprofile(note)
            await call()
            sys.setprofile(None)
            counts[seen] += 1
    [(usual, _)] = counts.most_common(1)
    title = f"functions entered by a call that needs no approval, ledger {where}"
    return at_most(title, usual, "", ENTERED[where])


class Sealer:
    """Seals as the secrets do, under a key of no worth."""

    key = bytes(32)

    def seal(self, name: str, plain: bytes) -> bytes:
        return encrypted(self.key, plain, name.encode())

    def unseal(self, name: str, sealed: bytes) -> bytes:
        return decrypted(self.key, sealed, name.encode())


async def beside(server: str, judge: Judge, title: str) -> list[Row]:
    """Let both take turns: one in flight, then many."""
    numbers = count()
    async with attended(server) as (approve, approved), unattended(server) as plain:

        async def round_of(each: int, at_once: int) -> tuple[float, float]:
            texts = [f"{next(numbers):010}" for _ in range(each)]
            await approve(texts)
            first = await timed(plain, texts, at_once)
            return first, await timed(approved, texts, at_once)

        await round_of(TURNS, 1)
        one = [await round_of(TURNS, 1) for _ in range(ROUNDS)]
        many = [await round_of(CROWD, AT_ONCE) for _ in range(ROUNDS)]
    rows: list[Row] = []
    for name, pairs in (("one in flight", one), (f"{AT_ONCE} in flight", many)):
        ratio = median(after / before for before, after in pairs)
        rows.append(judge(f"{title}, {name}: time of a call, approved / unattended", ratio, "x"))
        for who, which in (("unattended", 0), ("approved", 1)):
            each = median(pair[which] for pair in pairs) * 1e6
            rows.append(Row(f"{title}, {name}: {who}", each, "us"))
    return rows


async def timed(call: Calling, texts: list[str], at_once: int) -> float:
    """Make the calls, so many at once; return the seconds for each."""
    left = iter(texts)

    async def work() -> None:
        for text in left:
            assert await call(text)

    began = default_timer()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return (default_timer() - began) / len(texts)


@asynccontextmanager
async def unattended(server: str) -> AsyncGenerator[Calling]:
    """Connect a session that needs no approval."""
    async with opened() as ledger, session(server, ledger, None) as call:
        yield call


@asynccontextmanager
async def attended(server: str) -> AsyncGenerator[tuple[Approve, Calling]]:
    """Connect a session whose every call needs approval, and somebody who gives it."""
    async with opened() as ledger:
        store = await LedgerStore(ledger, Sealer()).open()
        approvals = Approvals(store, ApprovalSettings())

        async with session(server, ledger, approvals) as call:

            async def approve(text: str) -> None:
                assert not await call(text)

            async def approve_all(texts: list[str]) -> None:
                asked: list[str] = []
                forget = approvals.subscribe(lambda one: asked.append(one.id))
                await asyncio.gather(*map(approve, texts))
                forget()
                await asyncio.gather(*map(decide, asked))

            async def decide(id: str) -> None:
                found = await approvals.get(id)
                assert found is not None
                by = Decider(name="boss")
                await approvals.decide(id, Decision(verb="approve", by=by, digest=found.digest))

            yield approve_all, call
        store.close()


@asynccontextmanager
async def session(
    server: str, ledger: SqliteLedger, approvals: Approvals | None
) -> AsyncGenerator[Calling]:
    budgets = {"max_concurrency": AT_ONCE}
    asks = {"default": "never" if approvals is None else "always"}
    record = Server.stdio("bench", *command(server), budgets=budgets, approval_policy=asks)
    async with (
        Bridge.open([record], ledger=ledger, approver=approvals) as bridge,
        bridge.session(server_ids=["bench"], caller="bench") as opened_session,
    ):
        (tool,) = await opened_session.tools()

        async def call(text: str) -> bool:
            outcome = await opened_session.call(tool.model_name, {"text": text}, approval="return")
            return outcome.ok

        yield call
