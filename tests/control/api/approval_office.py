"""Approvals behind their routes, over either store, with people who ask and decide."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from bascule.asgi.guard import GuardedApp
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approvals import Approvals, ApprovalStore, LedgerStore, MemoryStore
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.auth.identity import Principal
from bascule.control.api.approvals import approval_routes
from bascule.model.approval import ApprovalRequest, Waiting
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import APPROVALS
from checks.openapi import describe
from tests.asgi.caller import Answer, make_tokens
from tests.control.api.desk import Counter
from tests.control.keeping_secrets import opened

StoreName = Literal["memory", "ledger"]
STORES: tuple[StoreName, ...] = ("memory", "ledger")
DEFINITION = {"name": "delete", "description": "Delete a note.", "inputSchema": {"type": "object"}}
#: Everybody who can be named by a token; the token is the name.
PEOPLE = (
    Principal("olga", "admin", None, "tok-olga"),
    Principal("otto", "approver", None, "tok-otto", person="otto"),
    Principal("anns", "approver", None, "tok-anns", person="ann"),
    Principal("ann-made", "approver", None, "tok-made", made_by="ann"),
    Principal("agent", "approver", None, "tok-namesake"),
    Principal("agent-itself", "approver", None, "tok-agent"),
    Principal("home", "approver", None, "tok-home", tasks=("home",)),
    Principal("wall", "viewer", None, "tok-wall"),
    Principal("client", "client", "t", "tok-client"),
    Principal("op", "operator", None, "tok-op"),
)


class Known:
    """Knows these people by their tokens."""

    def __init__(self) -> None:
        self.principals = {one.name: one for one in PEOPLE}

    async def verify(self, token: str) -> Principal | None:
        return self.principals.get(token)


class Office(Counter):
    """The approvals of one process, and its routes."""

    def __init__(self, approvals: Approvals, clock: FakeClock) -> None:
        self.approvals = approvals
        self.clock = clock
        self.people = 0
        self.known = Known()
        routes = approval_routes(approvals, people=lambda: self.people, clock=clock)
        super().__init__(routes, make_tokens(), describe(routes))
        self.app = GuardedApp(routes, self.known)

    async def ask_for(self, arguments: bytes = b"{}", **fields: Any) -> str:
        """Ask for approval of a call; return the question's id."""
        request = asked(arguments, **fields)
        answer = await self.approvals.ask(request, 0)
        assert isinstance(answer, Waiting)
        assert answer.approval_id is not None
        return answer.approval_id

    async def get(self, path: str = "", who: str = "otto") -> Answer:
        return await self.ask("GET", f"{APPROVALS}{path}", role=None, headers=by(who))

    async def question(self, id: str, who: str = "otto") -> Any:
        answer = await self.get(f"/{id}", who)
        assert answer.status == 200, answer.body
        return answer.json

    async def ids(self, query: str = "", who: str = "otto") -> list[str]:
        answer = await self.get(query, who)
        assert answer.status == 200, answer.body
        return [one["id"] for one in answer.json["approvals"]]

    async def decide(
        self, id: str, decision: str = "approve", who: str = "otto", **fields: Any
    ) -> Answer:
        """Decide on what is shown now."""
        digest = (await self.question(id, "olga"))["digest"]
        body = {"decision": decision, "digest": digest, **fields}
        return await self.post(id, body, who)

    async def post(self, id: str, body: Mapping[str, Any], who: str = "otto") -> Answer:
        path = f"{APPROVALS}/{id}/decision"
        return await self.ask("POST", path, body, role=None, headers=by(who))


def by(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {who}"}


def asked(arguments: bytes = b"{}", **fields: Any) -> ApprovalRequest:
    """Return what ann's agent asks."""
    given: dict[str, Any] = {
        "request_id": "s1-1",
        "session_id": "s1",
        "caller": "agent",
        "token_id": "tok-agent",
        "task_id": "home",
        "server": "notes",
        "tool": "delete",
        "person": "ann",
        "definition": DEFINITION,
        **fields,
    }
    return ApprovalRequest(
        arguments=msgspec.json.decode(arguments),
        arguments_digest=hashlib.sha256(arguments).hexdigest(),
        definition_digest=hashlib.sha256(msgspec.json.encode(given["definition"])).hexdigest(),
        revision=7,
        rule="approval_policy.per_tool['delete']",
        payload=arguments,
        **given,
    )


@asynccontextmanager
async def open_office(
    kind: StoreName,
    folder: Path,
    settings: ApprovalSettings | None = None,
    clock: FakeClock | None = None,
) -> AsyncGenerator[Office]:
    clock = clock or FakeClock()
    async with AsyncExitStack() as stack:
        store: ApprovalStore = MemoryStore(clock)
        if kind == "ledger":
            ledger = SqliteLedger(folder, key=bytes(32), clock=clock)
            await ledger.open()
            stack.push_async_callback(ledger.close)
            secrets = await stack.enter_async_context(opened(folder, clock=clock))
            store = await LedgerStore(ledger, secrets.sealer(), clock).open()
            stack.callback(store.close)
        approvals = Approvals(store, settings, clock=clock)
        stack.push_async_callback(approvals.close)
        yield Office(approvals, clock)
