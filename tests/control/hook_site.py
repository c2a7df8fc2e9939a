"""A program that is asked about approvals: a real HTTP server on loopback, and what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from email.parser import BytesHeaderParser

from bascule.approval_hook import HookDecision, HookQuestion, verify
from bascule.audit.approval_settings import ApprovalSettings
from bascule.audit.approval_steps import digest_of
from bascule.audit.approvals import Approvals, ApprovalStore, MemoryStore
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.approval_hook import ApprovalHook
from bascule.model.approval import Approval, ApprovalRequest, Waiting
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import HttpClient, HttpOptions, Url
from tests.outbound.scripted_server import Line, ScriptedPeer, scripted
from tests.waits import Heard, until

KEY = bytes(range(32))
SECRET = "correct horse battery staple"

#: A question as it is sent.
PLAIN = {
    "id": "apr-1",
    "digest": "d1",
    "asked_at": 1.0,
    "expires_at": 2.0,
    "task": None,
    "server": "notes",
    "tool": "delete_note",
    "rule": "default",
    "person": "ada",
    "caller": None,
    "definition_digest": "d2",
    "decide_at": "/admin/api/approvals/apr-1/decision",
    "arguments": {"note": 12345678901234567890123, "é": "\u202e"},
    "definition": {"name": "delete_note"},
}


def request(
    number: int = 1, *, caller: str = "agent", person: str | None = None
) -> ApprovalRequest:
    """Return the question about one call; another number is another call."""
    payload = b'{"note": %d, "why": "%b"}' % (number, SECRET.encode())
    return ApprovalRequest(
        request_id=f"call-{number}",
        session_id="session-1",
        caller=caller,
        task_id="demo",
        server="notes",
        tool="delete_note",
        arguments={"note": number, "why": SECRET},
        arguments_digest=digest_of(payload),
        definition_digest="d" * 64,
        revision=1,
        rule="rules[0]",
        person=person,
        token_id="tok-1",
        payload=payload,
        definition={"name": "delete_note", "description": "Delete a note"},
    )


async def pending(
    approvals: Approvals, number: int = 1, *, caller: str = "agent", person: str | None = None
) -> str:
    """Ask without waiting; return the id."""
    answer = await approvals.ask(request(number, caller=caller, person=person), wait=0)
    assert isinstance(answer, Waiting)
    return answer.approval_id or ""


async def state(approvals: Approvals, id: str) -> str:
    found = await approvals.get(id)
    assert found is not None
    return found.state


async def decided(approvals: Approvals, id: str) -> Approval:
    """Wait until a question is decided."""

    async def look() -> Approval | None:
        found = await approvals.get(id)
        return found if found is not None and found.state != "pending" else None

    found = await until(look)
    assert found is not None
    return found


def http(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    """Return a whole answer."""
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", "")
    return "\r\n".join(lines).encode() + body


def asked(data: bytes, key: bytes, clock: Clock) -> HookQuestion:
    """Return the question in a request, whose signature must be right."""
    head, _, body = data.partition(b"\r\n\r\n")
    headers = BytesHeaderParser().parsebytes(head.partition(b"\r\n")[2])
    plain = {name: str(value) for name, value in headers.items()}
    return verify(key.hex(), plain, body, clock=clock)


Conduct = Callable[[HookQuestion, Line], Awaitable[None]]


class Receiver:
    """Checks each question, notes it and does as it is told."""

    def __init__(self, peer: ScriptedPeer, heard: Heard[HookQuestion]) -> None:
        self.peer = peer
        self.heard = heard
        self.url = Url.parse(f"http://127.0.0.1:{peer.port}/ask?key=in-the-query")


@asynccontextmanager
async def receiving(
    conduct: Conduct, key: bytes = KEY, clock: Clock = SYSTEM_CLOCK
) -> AsyncGenerator[Receiver]:
    """Serve while the block runs; a signature that is wrong fails the test."""
    heard = Heard[HookQuestion]()

    async def script(line: Line) -> None:
        question = asked(await line.request(), key, clock)
        heard.hear(question)
        await conduct(question, line)

    async with scripted(script) as peer:
        yield Receiver(peer, heard)


def saying(decision: HookDecision, reason: str = "") -> Conduct:
    """Answer every question so."""

    async def conduct(question: HookQuestion, line: Line) -> None:
        await line.say(http(question.answer(decision, reason)))
        await line.left()

    return conduct


def sending(data: bytes | Callable[[HookQuestion], bytes]) -> Conduct:
    """Send these bytes, whatever is asked."""

    async def conduct(question: HookQuestion, line: Line) -> None:
        await line.say(data if isinstance(data, bytes) else data(question))
        await line.left()

    return conduct


async def silence(_: HookQuestion, line: Line) -> None:
    """Say nothing until the other side has had enough."""
    await line.left()


def desk(store: ApprovalStore | None = None, seconds: int = 30) -> Approvals:
    """Return approvals whose hook has so long to answer."""
    return Approvals(store or MemoryStore(), ApprovalSettings(hook_seconds=seconds))


def hook_at(
    approvals: Approvals,
    url: Url,
    options: HttpOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ApprovalHook:
    plain = HttpOptions(connect_seconds=20, egress=EgressRules(), insecure=True)
    return ApprovalHook(approvals, url, KEY, HttpClient(options or plain), clock=clock)


@asynccontextmanager
async def running(hook: ApprovalHook) -> AsyncGenerator[None]:
    """Run a hook beside the block."""
    task = asyncio.ensure_future(hook.run())
    await until(lambda: hook._approvals._listeners)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
