"""A ``ChatUpstream`` in memory that says what it was told to, and a session over fakes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bascule.loop.backend import RawAnswer, UpstreamFailed
from bascule.loop.request import ChatRequest, read_chat

Json = dict[str, Any]


def says(text: str | None, **more: Any) -> Json:
    """Make a completion in which the model answers."""
    message = {"role": "assistant", "content": text, **more.pop("message", {})}
    finish = more.pop("finish_reason", "stop")
    return {
        "id": "up-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **more,
    }


def asks(*calls: Json, text: str | None = None, **more: Any) -> Json:
    """Make a completion in which the model calls tools."""
    return says(text, message={"tool_calls": list(calls)}, finish_reason="tool_calls", **more)


def call(name: str, arguments: Any = None, call_id: str | None = "c1") -> Json:
    """Make one call; arguments that are text stand as they are."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    function = {"name": name, "arguments": written}
    return {"id": call_id, "type": "function", "function": function}


def pieces(completion: Json, size: int = 3) -> list[Json]:
    """Cut a completion into the chunks a stream would have."""
    choice = completion["choices"][0]
    message = choice["message"]
    head = {k: v for k, v in completion.items() if k not in {"choices", "object", "usage"}}
    deltas: list[Json] = [{"role": "assistant"}]
    text = message.get("content") or ""
    deltas += [{"content": text[i : i + size]} for i in range(0, len(text), size)]
    for index, one in enumerate(message.get("tool_calls") or ()):
        function = one["function"]
        start = {**one, "index": index, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [start]})
        written = function["arguments"]
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": written[i : i + size]}}]}
            for i in range(0, len(written), size)
        ]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks.append({**head, "choices": [last]})
    if "usage" in completion:
        chunks.append({**head, "choices": [], "usage": completion["usage"]})
    return chunks


class Hang:
    """A step at which the upstream says no more; ``reached`` is set when it gets there."""

    def __init__(self, *before: Json) -> None:
        self.before = before
        self.reached = asyncio.Event()
        self.ended = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


Step = Json | Sequence[Json] | UpstreamFailed | Hang


class FakeUpstream:
    """Takes its steps in order, one for each request, and remembers what it was asked."""

    def __init__(self, *steps: Step, name: str = "fake") -> None:
        self.name = name
        self._steps = list(steps)
        self.asked: list[Json] = []
        self.forwarded: list[bytes] = []
        self.raw = RawStep()

    def script(self, *steps: Step) -> None:
        """Take these steps from now on."""
        self._steps = list(steps)

    def _next(self, body: Mapping[str, Any]) -> Step:
        self.asked.append(json.loads(json.dumps(body)))
        assert self._steps, f"nobody expected another request: {body}"
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, UpstreamFailed):
            raise step
        return step

    async def complete(self, body: Mapping[str, Any], *, seconds: float) -> Json:
        assert seconds > 0
        step = self._next(body)
        if isinstance(step, Hang):
            await step.wait()
        assert isinstance(step, dict)
        return step

    async def stream(
        self, body: Mapping[str, Any], *, seconds: float
    ) -> AsyncGenerator[Json, None]:
        assert seconds > 0
        step = self._next(body)
        if isinstance(step, Hang):
            for chunk in step.before:
                yield chunk
            await step.wait()
        chunks = pieces(step) if isinstance(step, dict) else step
        assert not isinstance(chunks, Hang | UpstreamFailed)
        for chunk in chunks:
            if "fail" in chunk:
                raise UpstreamFailed(chunk["fail"])
            yield chunk

    @asynccontextmanager
    async def forward(self, body: bytes) -> AsyncGenerator[RawAnswer, None]:
        self.forwarded.append(body)
        if self.raw.failure is not None:
            raise self.raw.failure
        try:
            yield RawAnswer(self.raw.status, self.raw.headers, self.raw.pieces())
        finally:
            self.raw.ended.set()

    async def models(self) -> list[str]:
        return ["m"]


class RawStep:
    """What a forwarded request is answered with."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {"content-type": "application/json"}
        self.chunks: list[bytes] = [b'{"raw": ', b" true}"]
        self.failure: UpstreamFailed | None = None
        self.hang = False
        self.ended = asyncio.Event()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        for chunk in self.chunks:
            yield chunk
        if self.hang:
            await asyncio.Event().wait()


def chat(text: str = "hello", **fields: Any) -> ChatRequest:
    """Make a request."""
    plain = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return read_chat(plain)
