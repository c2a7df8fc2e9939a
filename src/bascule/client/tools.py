"""The tools API of a Bascule server, as a client has it: list, call, explain.

A call is sent once; what becomes of it when the connection fails is said by the error's class. One
that waits for approval is sent once more, with the question's id: it asks nothing again, and it is
a stream, which proxies do not take for dead.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from bascule.client.approval_times import outcome_of
from bascule.client.http import (
    MAX_ANSWER_BYTES,
    REQUEST_SECONDS,
    ApiClient,
    ApiError,
    Query,
    Unreachable,
)
from bascule.clock import seconds_of
from bascule.model.approval import RETURN, Asking, OnWaiting, Waiting, waiting_of
from bascule.model.call import NO_LIMITS, CallLimits, Progress
from bascule.model.explanation import Explanation
from bascule.model.json import JsonObject, is_object
from bascule.model.outcome import Outcome
from bascule.model.session import SessionRequest
from bascule.wire.api.addresses import IDENTITY
from bascule.wire.api.tokens import Identity
from bascule.wire.api.tools import (
    MAX_WAIT_MS,
    CallBody,
    OutcomeBody,
    OutputBody,
    OwnCallBody,
    OwnCallNoted,
    SessionBody,
    ToolsBody,
    WaitingBody,
)
from bascule.wire.narrowing import headers_of, user_header
from bascule.wire.strict_json import dumps

TOOLS = "/api/v1/tools"
T = TypeVar("T")
#: A list may have to start servers first.
LIST_SECONDS = 120.0
#: For a call without a time of its own: longer than a node waits for a person and a tool.
CALL_SECONDS = 4_500.0
#: What a call's own time leaves for the way there and back.
GRACE_SECONDS = 1.0
OnProgress = Callable[[Progress], None]


async def identity(api: ApiClient) -> Identity:
    """Ask a server whose token the client's is."""
    return await api.ask(Identity, "GET", IDENTITY)


class _Wanted(Struct, frozen=True):
    """One call as somebody wants it."""

    name: str
    arguments: JsonObject
    limits: CallLimits
    on_progress: OnProgress | None


class ToolsClient:
    """One session of the tools API: every request carries the same narrowing and person."""

    def __init__(
        self,
        api: ApiClient,
        request: SessionRequest | None = None,
        person: str | None = None,
        *,
        wait_seconds: float = MAX_WAIT_MS / 1000,
    ) -> None:
        self._api = api
        #: For how long one request waits for approval.
        self._wait_seconds = wait_seconds
        self._headers = {**headers_of(request or SessionRequest()), **user_header(person)}

    async def session(self) -> SessionBody:
        """Ask for what counts for the session, without its tools."""
        return await self._get(SessionBody, f"{TOOLS}/session", {}, REQUEST_SECONDS)

    async def tools(self) -> ToolsBody:
        """List the tools, with the decisions."""
        query = {"explain": True, "definitions": True}
        return await self._get(ToolsBody, TOOLS, query, LIST_SECONDS)

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        limits: CallLimits = NO_LIMITS,
        on_progress: OnProgress | None = None,
        asking: Asking = RETURN,
    ) -> Outcome:
        """Call a tool, once. Raise StrictJsonError for arguments that JSON cannot say.

        Where it needs approval, ``asking`` says for how long to wait; ``limits.timeout`` bounds
        that, too. Whoever is cancelled meanwhile hangs up, and so takes the question back.
        """
        began = asyncio.get_running_loop().time()
        wanted = _Wanted(name, arguments, limits, on_progress)
        id = None if asking.wait == 0 else asking.approval_id
        if id is None:
            body = replace(CallBody.of(name, arguments, limits), approval_id=asking.approval_id)
            outcome = await self._sent(body, wanted)
            waiting = waiting_of(outcome)
            if waiting is None or asking.wait == 0:
                return outcome
            id = waiting.approval_id
        return await self._waited(id, wanted, asking, began)

    async def _waited(self, id: str, wanted: _Wanted, asking: Asking, began: float) -> Outcome:
        """Wait for the answer to a question, and use it; again where one request's time is up."""
        clock, own = asyncio.get_running_loop().time, wanted.limits.timeout
        until = math.inf if asking.wait is None else clock() + asking.wait
        told = _once(asking.told)
        while True:
            ends = min(until, clock() + self._wait_seconds)
            limits = wanted.limits
            if own is not None:
                limits = replace(limits, timeout=own - (clock() - began))
            body = replace(
                CallBody.of(wanted.name, wanted.arguments, limits),
                approval_id=id,
                approval_wait_ms=wait_ms(ends - clock()),
            )
            outcome = await self._streamed(body, wanted.on_progress, told)
            early = clock() < ends - GRACE_SECONDS  # a server that does not wait is not asked on
            if waiting_of(outcome) is None or ends == until or early:
                return outcome

    async def _sent(self, call: CallBody, wanted: _Wanted) -> Outcome:
        if wanted.on_progress is not None:
            return await self._streamed(call, wanted.on_progress)
        body, seconds = _encoded(call), _seconds_for(call)
        try:
            answer = await self._api.request(
                "POST", f"{TOOLS}/call", body=body, headers=self._headers, seconds=seconds
            )
        except ApiError as error:
            if _is_outcome(error.body):
                return self._outcome(error.body)
            raise
        return self._outcome(answer.body)

    async def _streamed(
        self, call: CallBody, on_progress: OnProgress | None, told: OnWaiting | None = None
    ) -> Outcome:
        events = self._api.events(
            f"{TOOLS}/call",
            method="POST",
            body=_encoded(call),
            headers=self._headers,
            seconds=_seconds_for(call),
            max_event_bytes=MAX_ANSWER_BYTES,
        )
        async with aclosing(events) as stream:
            async for event in stream:
                if event.event == "progress" and on_progress is not None:
                    on_progress(self._api.shaped(event.data, Progress))
                elif event.event == "approval" and told is not None:
                    told(self._waiting(event.data))
                elif event.event == "outcome":
                    return self._outcome(event.data)
                elif event.event == "error":
                    raise self._api.error(0, self._api.shaped(event.data, JsonObject))
        raise Unreachable(f"{self._api.url}: the stream of a call ended without its outcome")

    async def note_own(self, call: OwnCallBody) -> OwnCallNoted:
        """Have a call of the caller's own tool written down, once; raise StrictJsonError."""
        body = dumps(asdict(call))
        return await self._api.ask(
            OwnCallNoted, "POST", f"{TOOLS}/own", body=body, headers=self._headers
        )

    async def explain(self, name: str) -> Explanation:
        """Explain a tool or a server."""
        return await self._get(Explanation, f"{TOOLS}/explain", {"name": name}, LIST_SECONDS)

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut."""
        query = {"handle": handle, "start": start, "end": end}
        return (await self._get(OutputBody, f"{TOOLS}/output", query, REQUEST_SECONDS)).text

    async def _get(self, kind: type[T], path: str, query: Query, seconds: float) -> T:
        return await self._api.ask(
            kind, "GET", path, query=query, headers=self._headers, seconds=seconds
        )

    def _outcome(self, body: object) -> Outcome:
        with self._readable():
            return outcome_of(self._api.shaped(body, OutcomeBody))

    def _waiting(self, body: bytes) -> Waiting:
        said = self._api.shaped(body, WaitingBody)
        with self._readable():
            until = None if said.expires_at is None else seconds_of(said.expires_at)
        return Waiting(said.approval_id, until)

    @contextmanager
    def _readable(self) -> Generator[None]:
        try:
            yield
        except ValueError as error:
            raise Unreachable(f"{self._api.url}: an answer that cannot be read: {error}") from None


def wait_ms(seconds: float) -> int:
    """Return a wait as a request says it: a float that is a hair too long would be refused."""
    return min(max(math.ceil(seconds * 1000), 0), MAX_WAIT_MS)


def _once(told: OnWaiting | None) -> OnWaiting:
    """Return what tells of the first question, and of no other."""
    listeners = [] if told is None else [told]

    def tell(waiting: Waiting) -> None:
        while listeners:
            listeners.pop()(waiting)

    return tell


def _seconds_for(call: CallBody) -> float:
    """Return how long the answer to a call may take."""
    own = call.timeout_ms
    return (CALL_SECONDS if own is None else own / 1000) + GRACE_SECONDS


def _encoded(body: CallBody) -> bytes:
    return dumps({name: value for name, value in asdict(body).items() if value is not None})


def _is_outcome(body: object) -> bool:
    return is_object(body) and "ok" in body and "request_id" in body
