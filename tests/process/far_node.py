"""A node whose approvals are at a control plane elsewhere, in a process that is going to be killed.

``nursery DATA COUNTED REGISTRY CLIENT`` forks a node for every line ``SEED HALTS`` that it is sent;
the node's token is in BASCULE_TOKEN. Each makes the same calls for the client token of that id, and
loses some answers to its claims. It says a word around each claim, at each commit and at the end of
each call. The counting server writes every execution to the file COUNTED before it answers. With
HALTS a node stops for good directly after a claim (``claim``) or an intent (``intent``).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable
from pathlib import Path

from bascule import Bridge, Server
from bascule.app.far_approvals import FarApprovals
from bascule.audit.events import CallIntent, LeavingCall
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.client.http import Unreachable
from bascule.client.rpc import RpcAccess, RpcSource
from bascule.client.rpc_approvals import ApprovalCalls
from bascule.model.approval import Asking, ExactCall
from bascule.model.outcome import Success
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.session import Session
from bascule.testing.server import ScriptedServer, do
from tests.process.ledger_node import AT_ONCE, KEY, said_commit, say

NAME = "mcp__counter__count"
CALLS = 12
#: How long a call waits for its approval before it is made again.
WAIT = Asking(wait=2.0)


def command_of(counted: Path) -> tuple[str, tuple[str, ...]]:
    """Return what starts the counting server."""
    command, args = ScriptedServer(behaviours={"count": do("ledger", path=str(counted))}).command
    return command, tuple(args)


def counting_server(counted: Path) -> ServerRecord:
    command, args = command_of(counted)
    limits = {"max_concurrency": AT_ONCE}
    policy = {"default": "always"}
    return Server.stdio("counter", command, *args, budgets=limits, approval_policy=policy)


class SaidCalls(ApprovalCalls):
    """Says a word around each claim, and loses some of the answers."""

    def __init__(self, source: RpcSource, rng: random.Random, halts: str) -> None:
        super().__init__(source)
        self._rng = rng
        self._halts = halts

    async def claim(self, id: str, call: ExactCall, intent: CallIntent) -> None:
        say(f"claiming {id}")
        await super().claim(id, call, intent)
        say(f"claimed {id}")
        if self._halts == "claim":
            await asyncio.Event().wait()
        if self._rng.random() < 0.3:
            raise Unreachable("the answer was lost")


class HaltingLedger(SqliteLedger):
    """Says that an intent is written; may stop there."""

    halts = ""

    def intent(self, leaving: LeavingCall) -> Awaitable[None] | None:
        waiting = super().intent(leaving)
        say(f"intent {leaving.intent().approval_id}")
        return asyncio.Event().wait() if self.halts == "intent" else waiting  # pyright: ignore[reportReturnType] - it never comes


async def call_until_over(session: Session, text: str) -> None:
    """Make one call until it ran, or may have, or was denied."""
    while True:
        outcome = await session.call(NAME, {"text": text}, approval=WAIT)
        if isinstance(outcome, Success):
            say(f"called {text}")
            return
        say(f"{outcome.error.code} {text}")
        if outcome.error.code not in {"mcp_approval_required", "mcp_unavailable"}:
            return


async def serve(data: Path, counted: Path, registry: str, client: str, line: str) -> None:
    seed, halts = line.split()
    rng = random.Random(seed)
    ledger = HaltingLedger(data, key=KEY, commit=said_commit)
    ledger.halts = halts
    await ledger.open()
    task = TaskRecord(task_id="t", mcp=TaskPolicy(enabled=True, default_server_ids=("counter",)))
    server = counting_server(counted)
    snapshot = Snapshot(servers={"counter": server}, tasks={"t": task})
    async with (
        RpcSource(registry, RpcAccess(token=os.environ["BASCULE_TOKEN"])) as source,
        FarApprovals(SaidCalls(source, rng, halts), ledger.refuse) as approvals,
        Bridge.open(snapshot, ledger=ledger, approver=approvals) as bridge,
        bridge.open_session(Opening(task="t", caller="client", token_id=client)) as session,
    ):
        say("open")
        texts = [f"call-{number}" for number in range(CALLS)]
        rng.shuffle(texts)
        await asyncio.gather(*(call_until_over(session, text) for text in texts))
    await ledger.close()
    say("all")


def nursery(data: Path, counted: Path, registry: str, client: str) -> None:
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            asyncio.run(serve(data, counted, registry, client, line))
            os._exit(0)
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    nursery(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
