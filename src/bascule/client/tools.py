"""The tools API of a Bascule server, as a client has it: list, call, explain.

A call is sent once; what becomes of it when the connection fails is said by the error's class.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import asdict

from bascule.client.http import (
    MAX_ANSWER_BYTES,
    REQUEST_SECONDS,
    ApiClient,
    ApiError,
    Query,
    Unreachable,
)
from bascule.model.call import NO_LIMITS, CallLimits, Progress
from bascule.model.explanation import Explanation
from bascule.model.json import JsonObject, is_object
from bascule.model.outcome import Outcome
from bascule.model.session import SessionRequest
from bascule.wire.api.addresses import IDENTITY
from bascule.wire.api.tokens import Identity
from bascule.wire.api.tools import CallBody, OutcomeBody, OutputBody, ToolsBody
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


async def identity(api: ApiClient) -> Identity:
    """Ask a server whose token the client's is."""
    return await api.ask(Identity, "GET", IDENTITY)


class ToolsClient:
    """One session of the tools API: every request carries the same narrowing and person."""

    def __init__(
        self, api: ApiClient, request: SessionRequest | None = None, person: str | None = None
    ) -> None:
        self._api = api
        self._headers = {**headers_of(request or SessionRequest()), **user_header(person)}

    async def tools(self) -> ToolsBody:
        """List the tools, with the decisions."""
        query = {"explain": True, "definitions": True}
        return await self._get(ToolsBody, TOOLS, query, LIST_SECONDS)

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        limits: CallLimits = NO_LIMITS,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Call a tool, once. Raise StrictJsonError for arguments that JSON cannot say."""
        body = _encoded(CallBody.of(name, arguments, limits))
        seconds = (CALL_SECONDS if limits.timeout is None else limits.timeout) + GRACE_SECONDS
        if on_progress is not None:
            return await self._call_with_progress(body, seconds, on_progress)
        try:
            answer = await self._api.request(
                "POST", f"{TOOLS}/call", body=body, headers=self._headers, seconds=seconds
            )
        except ApiError as error:
            if _is_outcome(error.body):
                return self._outcome(error.body)
            raise
        return self._outcome(answer.body)

    async def _call_with_progress(
        self, body: bytes, seconds: float, on_progress: Callable[[Progress], None]
    ) -> Outcome:
        events = self._api.events(
            f"{TOOLS}/call",
            method="POST",
            body=body,
            headers=self._headers,
            seconds=seconds,
            max_event_bytes=MAX_ANSWER_BYTES,
        )
        async with aclosing(events) as stream:
            async for event in stream:
                if event.event == "progress":
                    on_progress(self._api.shaped(event.data, Progress))
                elif event.event == "outcome":
                    return self._outcome(event.data)
                elif event.event == "error":
                    raise self._api.error(0, self._api.shaped(event.data, JsonObject))
        raise Unreachable(f"{self._api.url}: the stream of a call ended without its outcome")

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
        return self._api.shaped(body, OutcomeBody).outcome


def _encoded(body: CallBody) -> bytes:
    return dumps({name: value for name, value in asdict(body).items() if value is not None})


def _is_outcome(body: object) -> bool:
    return is_object(body) and "ok" in body and "request_id" in body
