"""The tools API of a Bascule server, as a client has it: list, call, explain.

Everything comes back as the model's own objects: descriptors, outcomes, explanations. A call is
sent once; what becomes of it when the connection fails is said by the error's class. Below:
``http.py``. Above: ``bascule.node.remote_session``, whose sessions these requests are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from bascule.client.http import MAX_ANSWER_BYTES, ApiClient, ApiError, Unreachable
from bascule.model.call import NO_LIMITS, CallLimits, Progress
from bascule.model.decision import Decision, Layer, Reason, deny
from bascule.model.json import is_object
from bascule.model.outcome import Failed, Failure, Outcome, Success, Truncation
from bascule.model.session import SessionRequest
from bascule.model.tool import ToolDescriptor
from bascule.policy.explain import Explanation
from bascule.policy.filters import Filters, LayerFilter
from bascule.wire.narrowing import headers_of
from bascule.wire.strict_json import dumps

TOOLS = "/api/v1/tools"
IDENTITY = "/api/v1/identity"
#: A list may have to start servers first.
LIST_SECONDS = 120.0
#: For a call without a time of its own: longer than a node waits for a person and a tool.
CALL_SECONDS = 4_500.0
#: What a call's own time leaves for the way there and back.
GRACE_SECONDS = 1.0
_MAX_MILLISECONDS = 86_400_000
_MAX_OUTPUT_BYTES = 104_857_600


class Identity(Struct, frozen=True):
    """Whose token it is, and where the registry behind the server stands."""

    name: str
    role: str
    task: str | None = None
    store_id: str = ""
    revision: int = 0


class ToolListing(Struct, frozen=True):
    """The tools of a session, what was left out, and the decision on everything considered."""

    revision: int
    tools: tuple[ToolDescriptor, ...]
    warnings: tuple[str, ...]
    explanations: tuple[Explanation, ...]


async def identity(api: ApiClient) -> Identity:
    """Ask a server whose token the client's is."""
    answer = await api.request("GET", IDENTITY)
    return api.shaped(answer.body, Identity)


class ToolsClient:
    """One session of the tools API: every request carries the same narrowing."""

    def __init__(self, api: ApiClient, request: SessionRequest | None = None) -> None:
        self._api = api
        self._headers = {} if request is None else headers_of(request)

    async def tools(self) -> ToolListing:
        """List the tools, with the decisions."""
        answer = await self._api.request(
            "GET",
            TOOLS,
            query={"explain": "true", "definitions": "true"},
            headers=self._headers,
            seconds=LIST_SECONDS,
        )
        listed = self._api.shaped(answer.body, _Listing)
        return ToolListing(
            listed.revision,
            tuple(tool.descriptor() for tool in listed.tools),
            listed.warnings,
            tuple(line.explanation() for line in listed.explanations),
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        limits: CallLimits = NO_LIMITS,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Call a tool, once. Raise StrictJsonError for arguments that JSON cannot say."""
        body = _call_body(name, arguments, limits)
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
                    raise self._api.error(0, self._api.shaped(event.data, dict[str, Any]))
        raise Unreachable(f"{self._api.url}: the stream of a call ended without its outcome")

    async def explain(self, name: str) -> Explanation:
        """Explain a tool or a server."""
        answer = await self._api.request(
            "GET",
            f"{TOOLS}/explain",
            query={"name": name},
            headers=self._headers,
            seconds=LIST_SECONDS,
        )
        return self._api.shaped(answer.body, _Explained).explanation()

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut."""
        query = {"handle": handle, "start": str(start)}
        if end is not None:
            query["end"] = str(end)
        answer = await self._api.request(
            "GET", f"{TOOLS}/output", query=query, headers=self._headers
        )
        return self._api.shaped(answer.body, _Output).text

    def _outcome(self, body: Any) -> Outcome:
        return self._api.shaped(body, _Outcome).outcome()


def _call_body(name: str, arguments: Mapping[str, Any], limits: CallLimits) -> bytes:
    body: dict[str, Any] = {"name": name, "arguments": arguments}
    if limits.timeout is not None:
        body["timeout_ms"] = _milliseconds(limits.timeout)
    if limits.idle_timeout is not None:
        body["idle_timeout_ms"] = _milliseconds(limits.idle_timeout)
    if limits.max_output_bytes is not None:
        body["max_output_bytes"] = min(max(limits.max_output_bytes, 0), _MAX_OUTPUT_BYTES)
    return dumps(body)


def _milliseconds(seconds: float) -> int:
    """Return a time as the server takes it; one that is up already is the shortest there is."""
    return min(max(math.ceil(seconds * 1000), 1), _MAX_MILLISECONDS)


# --- the server's shapes


class _Tool(Struct, frozen=True):
    name: str
    description: str
    input_schema: dict[str, Any]
    server: str
    tool: str
    digest: str
    output_schema: Any = None
    annotations: Any = None
    definition: dict[str, Any] = {}

    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor(
            server_id=self.server,
            name=self.tool,
            model_name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            annotations=self.annotations,
            definition=self.definition,
            digest=self.digest,
        )


class _Explained(Struct, frozen=True):
    name: str
    server: str
    tool: str | None
    allowed: bool
    layer: Layer
    reason: Reason
    rule: str
    notes: tuple[str, ...]
    revision: int
    blocked_by: tuple[_Objection, ...] = ()
    filters: _Filters | None = None

    def explanation(self) -> Explanation:
        decision = Decision(
            self.server, self.tool, self.allowed, self.layer, self.reason, self.rule
        )
        return Explanation(
            self.name,
            self.server,
            self.tool,
            decision,
            self.revision,
            self.notes,
            tuple(deny(self.server, self.tool, *astuple(one)) for one in self.blocked_by),
            None if self.filters is None else self.filters.filters(),
        )


class _Objection(Struct, frozen=True):
    layer: Layer
    reason: Reason
    rule: str


class _Merged(Struct, frozen=True):
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    read_only: bool


class _Filters(Struct, frozen=True):
    layers: tuple[LayerFilter, ...]
    merged: _Merged

    def filters(self) -> Filters:
        return Filters(self.layers, *astuple(self.merged))


class _Listing(Struct, frozen=True):
    revision: int
    tools: tuple[_Tool, ...]
    warnings: tuple[str, ...]
    explanations: tuple[_Explained, ...]


class _Output(Struct, frozen=True):
    text: str


class _Outcome(Struct, frozen=True):
    ok: bool
    text: str
    content: tuple[dict[str, Any], ...]
    request_id: str
    revision: int
    structured: Any = None
    error: Failure | None = None
    truncated: Truncation | None = None
    warnings: tuple[str, ...] = ()

    def outcome(self) -> Outcome:
        if self.error is not None and not self._was_cut():
            return Failed(
                error=self.error,
                text=self.text,
                content=self.content,
                structured=self.structured,
                truncated=self.truncated,
                request_id=self.request_id,
                revision=self.revision,
                warnings=self.warnings,
            )
        return Success(
            text=self.text,
            content=self.content,
            structured=self.structured,
            truncated=self.truncated,
            request_id=self.request_id,
            revision=self.revision,
            warnings=self.warnings,
        )

    def _was_cut(self) -> bool:
        """Say whether the error only tells that the output was cut: that is an answer."""
        too_large = self.error is not None and self.error.code == "mcp_output_too_large"
        return too_large and self.truncated is not None


def _is_outcome(body: Any) -> bool:
    return is_object(body) and "ok" in body and "request_id" in body
