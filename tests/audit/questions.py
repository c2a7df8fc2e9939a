"""Questions about calls, and the stores that keep them, without a bridge."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import Decision
from bascule.audit.approvals import Approvals, LedgerStore
from bascule.audit.events import CallIntent
from bascule.audit.journal import Disk
from bascule.audit.ledger_settings import LedgerSettings
from bascule.audit.postgres_ledger import PostgresLedger
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.auth.encryption import NotOpened, decrypted, encrypted
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.postgres import Postgres
from bascule.db.sqlite import Commit, plain_commit
from bascule.model.approval import (
    BOUND,
    Approval,
    ApprovalRequest,
    Approved,
    Decider,
    ExactCall,
    Verb,
    Waiting,
)

KEY = bytes(32)
DISK = Disk()
BOSS = Decider(name="boss", token_id="tok-boss", person="eve")


class KeySealer:
    """Seals under a key of its own."""

    def __init__(self, key: bytes = KEY) -> None:
        self._key = key

    def seal(self, name: str, plain: bytes) -> bytes:
        return encrypted(self._key, plain, name.encode())

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        try:
            return decrypted(self._key, sealed, name.encode())
        except NotOpened:
            return None


def request(text: str = "hello", **more: Any) -> ApprovalRequest:
    """Ask whether alice's agent may write a text."""
    payload = f'{{"text":"{text}"}}'.encode()
    digest = hashlib.sha256(payload).hexdigest()
    given: dict[str, Any] = {
        "request_id": f"r-{digest[:8]}",
        "session_id": "s",
        "caller": "agent",
        "task_id": "job",
        "server": "fs",
        "tool": "write",
        "arguments": {"text": text},
        "arguments_digest": digest,
        "definition_digest": "def-1",
        "revision": 1,
        "rule": "approval_policy is 'always'",
        "policy_digest": "pol-1",
        "person": "alice",
        "token_id": "tok-agent",
        "payload": payload,
        "definition": {"name": "write"},
    }
    return ApprovalRequest(**{**given, **more})


def other_calls(call: ExactCall) -> dict[str, ExactCall]:
    """Return a call for each thing that an approval is bound to, with another one of it."""
    return {name: replace(call, **{name: "another"}) for name in BOUND}


@dataclass
class Claiming:
    """A call that is about to leave with an approval."""

    request_id: str
    approval_id: str | None
    call: ExactCall
    reads: bool = False
    token_id: str | None = None

    def intent(self) -> CallIntent:
        call = self.call
        return CallIntent(
            1.5, self.request_id, "s", call.task_id, call.caller, call.token_id, call.server_id,
            call.tool_name, 1, call.arguments_digest, approved=True, approval_id=self.approval_id,
        )  # fmt: skip


def says(verb: Verb, approval: Approval, by: Decider = BOSS, reason: str = "") -> Decision:
    """Decide on what is asked."""
    return Decision(verb=verb, by=by, digest=approval.digest, reason=reason)


@asynccontextmanager
async def kept(
    folder: Path,
    settings: ApprovalSettings | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    commit: Commit = plain_commit,
    dsn: str | None = None,
) -> AsyncGenerator[Approvals, None]:
    """Open the approvals of a data directory, or of a database that others may share."""
    async with AsyncExitStack() as stack:
        if dsn is None:
            opened = opened_ledger(folder, clock=clock, commit=commit)
        else:
            opened = shared_ledger(dsn, folder, clock=clock)
        ledger = await stack.enter_async_context(opened)
        store = await LedgerStore(ledger, KeySealer(), clock).open()
        approvals = Approvals(store, settings, clock=clock)
        try:
            yield approvals
        finally:
            await approvals.close()
            store.close()


@asynccontextmanager
async def shared_ledger(
    dsn: str,
    folder: Path,
    *,
    settings: LedgerSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
    disk: Disk = DISK,
) -> AsyncGenerator[PostgresLedger, None]:
    """Open the ledger of a replica, whose journal is in this folder."""
    postgres = await Postgres(dsn).open()
    try:
        ledger = PostgresLedger(
            postgres, folder, key=KEY, settings=settings, node=folder.name, clock=clock, disk=disk
        )
        await ledger.open()
        try:
            yield ledger
        finally:
            await ledger.close()
    finally:
        await postgres.close()


@asynccontextmanager
async def opened_ledger(
    folder: Path, *, clock: Clock = SYSTEM_CLOCK, commit: Commit = plain_commit
) -> AsyncGenerator[SqliteLedger, None]:
    """Open the ledger of a data directory."""
    ledger = await SqliteLedger(folder, key=KEY, clock=clock, commit=commit).open()
    try:
        yield ledger
    finally:
        await ledger.close()


async def asked(approvals: Approvals, about: ApprovalRequest) -> Approval:
    """Ask a question that is new, and return it."""
    answer = await approvals.ask(about, 0)
    assert isinstance(answer, Waiting)
    found = await approvals.get(answer.approval_id)
    assert found is not None
    return found


async def approved(approvals: Approvals, about: ApprovalRequest) -> Approval:
    question = await asked(approvals, about)
    return await approvals.decide(question.id, says("approve", question))


async def claim(approvals: Approvals, approval: Approval, request_id: str = "c1") -> bool:
    leaving = Claiming(request_id, approval.id, approval.call)
    return await approvals.claim(Approved(approval.call, approval.id), approval.call, leaving)


async def state(approvals: Approvals, id: str) -> str:
    found = await approvals.get(id)
    return "gone" if found is None else found.state
