"""A scripted model's server: OpenAI's chat completions over real sockets, as its script says.

    async with ScriptedUpstream() as upstream:
        upstream.url                                    # http://127.0.0.1:PORT/v1
        upstream.add(calls(("mcp__time__now", {})), says("It is noon."))
        upstream.requests[-1].json["messages"]          # what came in, parsed and as bytes
        await upstream.saw(2)                           # wait until so many came
        await upstream.requests[-1].hung_up.wait()      # its client left before the end

Each request takes the next ``Reply``; when none is left, ``choose`` is asked, and then ``default``
is said. A reply is whole or streamed as the request wants it. Broken ones: ``streams`` sends chunks
or raw bytes as given, ``sends`` any status, headers and body, ``cut_after`` resets the connection,
``hangs`` goes silent, and a ``Gate`` lets pieces through one by one, when the test says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from aiohttp import web

from bascule.model.json import JsonObject, JsonValue, is_object, objects
from bascule.testing.http_listener import HOST, HttpListener
from bascule.testing.http_outlet import EVENTS, JSON, reset

CREATED = 1_800_000_000
DONE = b"data: [DONE]\n\n"

Json: TypeAlias = dict[str, JsonValue]
#: A tool's name and its arguments, or a whole tool call, right or wrong, as a dictionary.
Call: TypeAlias = tuple[str, JsonObject | str] | JsonObject


class Gate:
    """Lets the pieces of an answer through as the test says: the head first, then each chunk."""

    def __init__(self) -> None:
        self._permits = asyncio.Semaphore(0)
        self._open = False

    def let(self, pieces: int = 1) -> None:
        """Let so many more pieces through."""
        for _ in range(pieces):
            self._permits.release()

    def open(self) -> None:
        """Let everything through from now on."""
        self._open = True
        self.let()

    async def pass_through(self) -> None:
        """Wait for leave to say the next piece."""
        await self._permits.acquire()
        if self._open:
            self._permits.release()


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one request is answered with."""

    text: str | None = None
    tool_calls: Sequence[Call] = ()
    refusal: str | None = None
    finish: str | None = None
    usage: Mapping[str, int] | None = None
    #: Sent as they are: a mapping as one event, bytes as bytes. Only for requests that stream.
    chunks: Sequence[JsonObject | bytes] | None = None
    #: A whole body as it is, whatever was asked for.
    body: bytes | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    done: bool = True
    #: Reset the connection after so many pieces of the body.
    cut_after: int | None = None
    #: Go silent after so many pieces of the body; None: never.
    hang_after: int | None = None
    #: Close the connection after the whole answer, having promised to keep it.
    hang_up: bool = False
    gate: Gate | None = None

    def message(self, number: int) -> Json:
        """Return the assistant's message of the reply to this request."""
        message: Json = {"role": "assistant", "content": self.text}
        if self.refusal is not None:
            message["refusal"] = self.refusal
        if self.tool_calls:
            message["tool_calls"] = [
                _tool_call(call, f"call_{number}_{index}")
                for index, call in enumerate(self.tool_calls)
            ]
        return message

    @property
    def finish_reason(self) -> str:
        """Return why the answer ended, as OpenAI would say it."""
        return self.finish or ("tool_calls" if self.tool_calls else "stop")


def says(text: str, **options: Any) -> Reply:
    """Answer with text. ``options`` are further fields of ``Reply``, here and below."""
    return Reply(text=text, **options)


def calls(*tool_calls: Call, **options: Any) -> Reply:
    """Answer with tool calls, and with ``text`` beside them if given."""
    return Reply(tool_calls=tool_calls, **options)


def streams(*chunks: JsonObject | bytes, **options: Any) -> Reply:
    """Answer with chunks as given; ``done=False`` leaves out ``[DONE]``."""
    return Reply(chunks=chunks, **options)


def sends(body: bytes | str | JsonObject, status: int = 200, **headers: str) -> Reply:
    """Answer with a body as given; underscores of header names stand for hyphens."""
    data = body.encode() if isinstance(body, str) else body
    if not isinstance(data, bytes):
        data = json.dumps(data).encode()
    return Reply(
        body=data,
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def fails(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Reply:
    """Answer with an error in OpenAI's shape."""
    error = {"message": message, "type": "scripted", "param": None, "code": code}
    return sends({"error": error}, status, **headers)


def hangs(reply: Reply | None = None, *, after: int = 0) -> Reply:
    """Send the head and so many pieces, then nothing more until the client leaves."""
    return replace(reply or Reply(text="never said"), hang_after=after)


def chunk(
    content: str | None = None, *, finish: str | None = None, index: int = 0, **delta: JsonValue
) -> Json:
    """Return one chunk of a stream; ``delta`` are further fields of its delta."""
    said = {**({} if content is None else {"content": content}), **delta}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": "scripted",
        "choices": [{"index": index, "delta": said, "finish_reason": finish}],
    }


def _tool_call(call: Call, call_id: str) -> Json:
    if isinstance(call, Mapping):
        return dict(call)
    name, arguments = call
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


@dataclass
class SeenChat:
    """One request that came in, and what became of it."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    #: Which connection carried it, from one.
    connection: int
    #: Set when the whole reply was sent.
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set when the client left before that.
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    @cached_property
    def json(self) -> Any:
        """Return the body parsed; None when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass
class ScriptedUpstream(HttpListener):
    """A model's server while the ``async with`` block lasts; its fields may change meanwhile."""

    models: Sequence[str] = ("scripted",)
    #: If given, requests must carry it as a bearer token.
    key: str | None = None
    default: Reply = field(default_factory=lambda: says("ok"))
    #: Asked for a reply when the script is over; it may take its time.
    choose: Callable[[SeenChat], Reply | Awaitable[Reply | None] | None] | None = None
    #: What a request for the models is answered with, in place of the list.
    models_reply: Reply | None = None
    port: int = 0
    requests: list[SeenChat] = field(default_factory=list[SeenChat], init=False)

    def __post_init__(self) -> None:
        self._script: deque[Reply] = deque()

    @property
    def url(self) -> str:
        """Where the server is, as a backend's ``base_url``."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def chats(self) -> list[SeenChat]:
        """The requests for completions that came in."""
        return [seen for seen in self.requests if seen.verb == "POST"]

    def add(self, *replies: Reply) -> None:
        """Answer the next requests for completions with these, one each."""
        self._script.extend(replies)

    async def saw(self, count: int = 1) -> SeenChat:
        """Wait until so many requests for completions came in; return the last of these."""
        await self._until(lambda: len(self.chats) >= count)
        return self.chats[count - 1]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = SeenChat(
            request.method,
            request.path,
            request.headers.copy(),
            await request.content.read(),
            self._number(request.transport),
        )
        self.requests.append(seen)
        self._news.set()
        try:
            response = await self._answer(request, seen)
        except (ConnectionError, asyncio.CancelledError):
            seen.hung_up.set()
            raise
        seen.answered.set()
        return response

    def _number(self, transport: asyncio.Transport | None) -> int:
        if self._connections is None or transport is None:
            return 0
        return self._connections.numbers.get(transport, 0)

    async def _answer(self, request: web.BaseRequest, seen: SeenChat) -> web.StreamResponse:
        if self.key is not None and seen.headers.get("Authorization") != f"Bearer {self.key}":
            reply = fails(401, "Incorrect API key provided", code="invalid_api_key")
        elif (seen.verb, seen.path) == ("GET", "/v1/models"):
            reply = self.models_reply or sends(_listing(self.models))
        elif (seen.verb, seen.path) == ("POST", "/v1/chat/completions"):
            reply = await self._next(seen)
        else:
            reply = fails(404, f"Invalid URL ({seen.verb} {seen.path})")
        return await _Telling(request, seen, reply, len(self.chats)).tell()

    async def _next(self, seen: SeenChat) -> Reply:
        if self._script:
            return self._script.popleft()
        chosen = self.choose(seen) if self.choose is not None else None
        if chosen is not None and not isinstance(chosen, Reply):
            chosen = await chosen
        return chosen or self.default


@dataclass
class _Telling:
    """One reply on its way."""

    request: web.BaseRequest
    seen: SeenChat
    reply: Reply
    number: int

    async def tell(self) -> web.StreamResponse:
        """Send the head and the pieces, each when it may go."""
        reply = self.reply
        streamed = reply.body is None and self._asked("stream") is True
        pieces = self._events() if streamed else [self._whole()]
        head = {"Content-Type": EVENTS if streamed else JSON, **reply.headers}
        await self._leave()
        response = web.StreamResponse(status=reply.status, headers=head)
        if not streamed and reply.hang_after is None and reply.cut_after is None:
            response.content_length = len(pieces[0])
        await response.prepare(self.request)
        for sent, piece in enumerate(pieces):
            await self._fate(sent)
            await self._leave()
            await response.write(piece)
        await self._fate(len(pieces))
        await response.write_eof()
        if reply.hang_up and self.request.transport is not None:
            self.request.transport.close()
        return response

    async def _leave(self) -> None:
        if self.reply.gate is not None:
            await self.reply.gate.pass_through()

    async def _fate(self, sent: int) -> None:
        """Break off or go silent here, if that is the script."""
        if self.reply.cut_after == sent:
            reset(self.request.transport)
            raise ConnectionResetError
        if self.reply.hang_after == sent:
            await asyncio.get_running_loop().create_future()

    def _asked(self, name: str) -> JsonValue:
        body = self.seen.json
        return body.get(name) if is_object(body) else None

    def _frame(self, kind: str, choices: Sequence[JsonObject]) -> Json:
        return {
            "id": f"chatcmpl-{self.number}",
            "object": kind,
            "created": CREATED,
            "model": str(self._asked("model")),
            "choices": choices,
        }

    def _usage(self) -> Mapping[str, int]:
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return usage if self.reply.usage is None else self.reply.usage

    def _whole(self) -> bytes:
        if self.reply.body is not None:
            return self.reply.body
        choice = {
            "index": 0,
            "message": self.reply.message(self.number),
            "logprobs": None,
            "finish_reason": self.reply.finish_reason,
        }
        frame = self._frame("chat.completion", [choice])
        return json.dumps({**frame, "usage": self._usage()}).encode()

    def _events(self) -> list[bytes]:
        given = self._chunks() if self.reply.chunks is None else self.reply.chunks
        events = [
            piece if isinstance(piece, bytes) else b"data: %b\n\n" % json.dumps(piece).encode()
            for piece in given
        ]
        return [*events, DONE] if self.reply.done else events

    def _chunks(self) -> list[Json]:
        deltas = _deltas(self.reply.message(self.number))
        choices: list[Json] = [{"index": 0, "delta": d, "finish_reason": None} for d in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": self.reply.finish_reason})
        chunks = [self._frame("chat.completion.chunk", [one]) for one in choices]
        options = self._asked("stream_options")
        if is_object(options) and options.get("include_usage"):
            chunks.append({**self._frame("chat.completion.chunk", []), "usage": self._usage()})
        return chunks


def _deltas(message: Json) -> list[Json]:
    """Take a message apart as models do: the role, words, and arguments in two halves."""
    words = re.findall(r"\s*\S+|\s+$", str(message["content"] or ""))
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words]
    if "refusal" in message:
        deltas.append({"refusal": message["refusal"]})
    for index, call in enumerate(objects(message.get("tool_calls"))):
        given = call.get("function")
        function: JsonObject = given if is_object(given) else {}
        text = str(function.get("arguments", ""))
        opening = {**call, "function": {**function, "arguments": ""}}
        half = len(text) // 2
        deltas.append({"tool_calls": [{"index": index, **opening}]})
        for part in (text[:half], text[half:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    return deltas


def _listing(models: Sequence[str]) -> Json:
    rows = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "scripted"}
        for name in models
    ]
    return {"object": "list", "data": rows}
