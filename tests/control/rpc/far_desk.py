"""A node's way to approvals over a real port, and whoever decides at the control plane."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from bascule.audit.approvals import Approvals
from bascule.audit.events import CallIntent
from bascule.client.rpc import RpcAccess, RpcSource
from bascule.client.rpc_approvals import ApprovalCalls
from bascule.control.registry.kinds import Kind
from bascule.model.approval import Approval, ApprovalRequest, Approved, ExactCall, Verb, Waiting
from bascule.model.tool import definition_digest
from tests.audit.questions import Claiming, says
from tests.control.registry.build import BY, server
from tests.control.rpc.counter import RpcCounter, open_counter

DEFINITION: dict[str, Any] = {"name": "write", "inputSchema": {"type": "object"}}
ASKS: dict[str, Any] = {"rules": [{"tools": ["fs/write"], "effect": "require_approval"}]}


class FarDesk:
    """The approvals of a control plane, and the calls by which a node of it asks for them."""

    def __init__(self, counter: RpcCounter, approvals: Approvals, source: RpcSource) -> None:
        self.counter = counter
        self.approvals = approvals
        self.source = source
        self.calls = ApprovalCalls(source)
        self.client = ""

    async def put(self, kind: Kind, key: str, **plain: Any) -> None:
        await self.counter.service.put(kind, key, plain, BY)

    async def fill(self) -> None:
        """Make a server, a task whose calls of one tool are asked about, and a client of it."""
        await self.put("server", "fs", **server("fs"))
        await self.put(
            "task", "t", task_id="t", mcp={"enabled": True, "default_server_ids": ["fs"]}
        )
        await self.put("platform", "platform", **ASKS)
        minted = await self.counter.tokens.mint("agent", "client", task_id="t", by="ada")
        self.client = minted.record.id

    def request(self, text: str = "hello", **more: Any) -> ApprovalRequest:
        """Return the question whether the client may write a text."""
        payload = f'{{"text":"{text}"}}'.encode()
        given: dict[str, Any] = {
            "request_id": f"r-{text}",
            "session_id": "s",
            "caller": "agent",
            "task_id": "t",
            "server": "fs",
            "tool": "write",
            "arguments": {"text": text},
            "arguments_digest": hashlib.sha256(payload).hexdigest(),
            "definition_digest": definition_digest(DEFINITION),
            "revision": 3,
            "rule": "platform.rules[0]",
            "policy_digest": "as the node sees it",
            "token_id": self.client,
            "payload": payload,
            "definition": DEFINITION,
        }
        return ApprovalRequest(**{**given, **more})

    async def waiting(self, about: ApprovalRequest) -> str:
        """Ask; return the id of the question."""
        answer = await self.calls.ask(about, 0)
        assert isinstance(answer, Waiting)
        return answer.approval_id

    async def found(self, id: str) -> Approval:
        found = await self.approvals.get(id)
        assert found is not None
        return found

    async def decide(self, id: str, verb: Verb = "approve") -> None:
        await self.approvals.decide(id, says(verb, await self.found(id)))

    async def approved(self, about: ApprovalRequest) -> Approved:
        """Ask, have it approved, and return that as the node hears it."""
        id = await self.waiting(about)
        await self.decide(id)
        given = Approved(about.call, id)
        assert await self.calls.ask(replace(about, approval_id=id), 0) == given
        return given


def intent_of(call: ExactCall, id: str | None, request_id: str = "c1") -> CallIntent:
    """Return what is written of a call that is about to leave."""
    return replace(Claiming(request_id, id, call).intent(), person=call.person)


@asynccontextmanager
async def far_desk(approvals: Approvals) -> AsyncGenerator[FarDesk, None]:
    """Serve approvals at a port, and open a node's way to them."""
    async with open_counter(approvals=approvals) as counter:
        access = RpcAccess(token=counter.given["node"])
        async with RpcSource(f"127.0.0.1:{counter.port}", access) as source:
            desk = FarDesk(counter, approvals, source)
            await desk.fill()
            yield desk
