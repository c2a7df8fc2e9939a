"""With MCP off, over real sockets on both sides: what leaves the upstream is what arrives."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest

from bascule.testing import Gate, ScriptedUpstream, fails, says, sends, streams
from bascule.testing.upstream import Reply
from tests.doors.chat.site import Site, backed

PLAIN = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
STREAM = b'{"model":"m","stream":true}'
OFF = {"X-Bascule-Enabled": "false"}


class Passing:
    """A served door, the upstream behind it, and what came through as it is on the wire."""

    def __init__(self, site: Site, upstream: ScriptedUpstream) -> None:
        self.site = site
        self.upstream = upstream

    @asynccontextmanager
    async def posted(
        self, body: bytes, task: str = "off", headers: dict[str, str] | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send a body as it is, and give its answer while it comes, nothing unpacked."""
        given = {"Content-Type": "application/json", **(headers or {})}
        given["Authorization"] = f"Bearer {await self.site.token(task)}"
        async with (
            aiohttp.ClientSession(auto_decompress=False) as http,
            asyncio.timeout(10),
            http.post(
                f"{self.site.url}/v1/chat/completions", data=io.BytesIO(body), headers=given
            ) as answer,
        ):
            yield answer

    async def passed(self, reply: Reply, body: bytes = PLAIN, **options: Any) -> tuple[int, bytes]:
        """Let the upstream give an answer; return what came through."""
        self.upstream.add(reply)
        async with self.posted(body, **options) as answer:
            return answer.status, await answer.read()


@pytest.fixture
async def passing() -> AsyncGenerator[Passing, None]:
    async with backed() as (site, upstream):
        yield Passing(site, upstream)


BODIES = [
    b'{ "id":"x",  "choices" : [ ], "extra": 1.50 }\n',
    b'{"a":1,"a":2,"b":NaN}',
    b'{"text":"\xc3\xa9 \xff\xfe not utf-8"}',
    b"",
    b"\x00\x01\x02" * 50_000,
    b"{}" + b" " * 300_000,
]


@pytest.mark.requirement("chat:disabled-unchanged")
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_an_answer_passes_byte_for_byte_whatever_it_is(passing: Passing, body: bytes):
    assert await passing.passed(sends(body)) == (200, body)
    assert await passing.passed(sends(body), task="writer", headers=OFF) == (200, body)
    assert [seen.body for seen in passing.upstream.chats] == [PLAIN, PLAIN]


@pytest.mark.requirement("chat:disabled-unchanged")
@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429, 500, 502, 503, 504, 529])
async def test_an_upstreams_error_passes_with_its_status_and_its_own_words(
    passing: Passing, status: int
):
    own = b'{"error" : {"message":"no such field",  "odd": [1.0]}}'
    assert await passing.passed(sends(own, status)) == (status, own)
    assert await passing.passed(sends(own, status), STREAM) == (status, own)


async def test_headers_that_clients_act_on_pass_and_the_upstreams_own_stay_behind(
    passing: Passing,
):
    told = {
        "Content-Type": "application/problem+json; charset=utf-8",
        "Retry-After": "7",
        "retry-after-ms": "6500",
        "x-should-retry": "false",
        "x-ratelimit-remaining-tokens": "3",
        "openai-processing-ms": "12",
        "openai-version": "2020-10-01",
    }
    kept_back = {"Set-Cookie": "a=1", "Server": "secret/1", "X-Internal": "10.0.0.1", "Via": "x"}
    names = {**told, **kept_back, "X-Request-Id": "req_up"}
    passing.upstream.add(sends(b"{}", 429, **names))
    async with passing.posted(PLAIN) as answer:
        headers = answer.headers
    assert {name: headers[name] for name in told} == told
    assert not any(headers.get(name) == value for name, value in kept_back.items())
    assert headers["x-upstream-request-id"] == "req_up"
    [ours] = headers.getall("x-request-id")
    assert ours != "req_up"


async def test_a_packed_answer_stays_packed(passing: Passing):
    packed = gzip.compress(b'{"a": 1}')
    passing.upstream.add(sends(packed, Content_Encoding="gzip"))
    async with passing.posted(PLAIN) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert await answer.read() == packed


async def test_openais_client_reads_a_packed_answer_and_an_upstreams_error(passing: Passing):
    said = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}}
    whole = json.dumps({**said, "choices": [{**choice, "finish_reason": "stop"}]}).encode()
    passing.upstream.add(sends(gzip.compress(whole), Content_Encoding="gzip"))
    passing.upstream.add(fails(400, "no such field", code="odd"))
    messages: Any = [{"role": "user", "content": "x"}]
    async with passing.site.client("off") as client:
        answer = await client.chat.completions.create(model="m", messages=messages)
        with pytest.raises(openai.BadRequestError, match="no such field") as caught:
            await client.chat.completions.create(model="m", messages=messages)
    assert answer.model_dump(exclude_unset=True) == json.loads(whole)
    assert caught.value.code == "odd"


PIECES = [
    'data: {"choices":[{"delta":{"content":"é'.encode()[:-1],
    'é"}}]}\r\n\r'.encode()[1:],
    b"\n: a comment\n\nevent: odd\ndata: x\ndata: y\n",
    b"\nid: 3\nretry: 10\n\ndata: [DONE]\n\ndata: after the end\n\n",
]


@pytest.mark.requirement("chat:disabled-unchanged")
async def test_a_stream_passes_byte_for_byte_wherever_it_is_cut(passing: Passing):
    reply = streams(*PIECES, done=False)
    assert await passing.passed(reply, STREAM) == (200, b"".join(PIECES))
    assert passing.upstream.chats[0].body == STREAM


async def test_each_piece_of_a_stream_passes_before_the_next_one_is_there(passing: Passing):
    gate = Gate()
    passing.upstream.add(streams(*PIECES, gate=gate, done=False))
    gate.let(1)
    async with passing.posted(STREAM) as answer:
        for piece in PIECES:
            gate.let(1)
            assert await answer.content.readexactly(len(piece)) == piece
        gate.open()
        assert await answer.read() == b""


async def test_a_stream_that_breaks_off_is_seen_to_break_off(passing: Passing):
    passing.upstream.add(streams(*PIECES, cut_after=2, done=False))
    async with passing.posted(STREAM) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


@pytest.mark.requirement("chat:disabled-unchanged")
@pytest.mark.parametrize("body", [PLAIN, STREAM])
async def test_nothing_of_ours_stands_in_an_answer_that_passes(passing: Passing, body: bytes):
    _, passed = await passing.passed(says("Hi."), body)
    assert b"Hi." in passed
    assert b"bascule" not in passed
    assert "tools" not in passing.upstream.chats[0].json
