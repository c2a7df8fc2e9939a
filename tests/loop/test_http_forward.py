"""A backend over HTTP: requests that pass unchanged, lists of models, and the end."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from bascule.loop.backend import UpstreamFailed
from bascule.testing import Gate, ScriptedUpstream, hangs, says, sends, streams
from tests.loop.http_backend import ASKED, KEY, reached, streamed, text_of
from tests.waits import SOON_SECONDS

# --- forwarding


async def test_a_request_is_forwarded_byte_for_byte_and_so_is_its_answer():
    body, answer = b'{"a" : 1,\n"model":"m", "a":2}', b'{"odd" :  "spacing"}\n'
    async with ScriptedUpstream(key=KEY) as upstream, reached(upstream) as backend:
        told = {"X_Request_Id": "r-1", "Retry_After": "3", "retry_after_ms": "2500"}
        upstream.add(sends(answer, 418, Set_Cookie="no=1", X_Should_Retry="false", **told))
        async with backend.forward(body) as raw:
            assert raw.status == 418
            assert raw.headers == {
                "content-type": "application/json",
                "x-request-id": "r-1",
                "retry-after": "3",
                "retry-after-ms": "2500",
                "x-should-retry": "false",
            }
            assert b"".join([piece async for piece in raw.chunks]) == answer
        assert upstream.chats[0].body == body


async def test_a_forwarded_stream_comes_in_the_pieces_it_came_in():
    gate = Gate()
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(streams(b"data: a\r\n", b"\r\nda", b"ta: b\n\n", gate=gate, done=False))
        gate.let(2)
        async with backend.forward(b'{"stream": true}') as raw:
            assert raw.headers["content-type"] == "text/event-stream"
            assert await anext(raw.chunks) == b"data: a\r\n"
            gate.open()
            rest = b"".join([piece async for piece in raw.chunks])
        assert rest == b"\r\ndata: b\n\n"


async def test_a_compressed_answer_is_forwarded_as_it_is_with_its_encoding():
    packed = gzip.compress(b'{"a": 1}')
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(sends(packed, Content_Encoding="gzip"))
        async with backend.forward(b"{}") as raw:
            assert raw.headers["content-encoding"] == "gzip"
            assert b"".join([piece async for piece in raw.chunks]) == packed


@pytest.mark.parametrize("cut", [0, 1, 12, 30])
async def test_a_forwarded_error_does_not_repeat_the_key(cut: int):
    text = f'{{"error": "no such key: {KEY}, {KEY}"}}'.encode()
    at = text.index(KEY.encode()) + cut
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(streams(text[:at], text[at:], status=401, done=False))
        async with backend.forward(b'{"stream": true}') as raw:
            answer = b"".join([piece async for piece in raw.chunks])
    assert (raw.status, answer) == (401, b'{"error": "no such key: ***, ***"}')


async def test_leaving_a_forwarded_answer_early_closes_the_upstream_request():
    scripted = ScriptedUpstream(default=hangs(streams(b"a"), after=1))
    async with scripted as upstream, reached(upstream) as backend, asyncio.timeout(SOON_SECONDS):
        async with backend.forward(b'{"stream": true}') as raw:
            assert await anext(raw.chunks) == b"a"
        await upstream.chats[0].hung_up.wait()


async def test_the_forwarders_own_errors_are_not_taken_for_the_upstreams():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        with pytest.raises(TimeoutError):
            async with backend.forward(b"{}"):
                raise TimeoutError
        with pytest.raises(ConnectionResetError):
            async with backend.forward(b"{}"):
                raise ConnectionResetError


async def test_a_forwarded_answer_that_is_cut_raises_where_it_is_read():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(streams(b"a", b"b", cut_after=1))
        with pytest.raises(UpstreamFailed, match="broke off"):
            async with backend.forward(b'{"stream": true}') as raw:
                _ = [piece async for piece in raw.chunks]


# --- models, and the end


async def test_models_are_named_once_and_in_order_and_nonsense_is_passed_over():
    scripted = ScriptedUpstream(models=("a", "b", "a"))
    async with scripted as upstream, reached(upstream) as backend:
        assert await backend.models() == ["a", "b"]
        upstream.models_reply = sends({"data": [{"id": "c"}, {"id": 3}, "d", {}]})
        assert await backend.models() == ["c"]
        upstream.models_reply = sends({"models": []})
        with pytest.raises(UpstreamFailed, match="garbled"):
            await backend.models()


async def test_a_retired_backend_ends_with_its_last_request_and_can_still_go_on():
    gate = Gate()
    async with (
        ScriptedUpstream() as upstream,
        reached(upstream) as backend,
        asyncio.timeout(SOON_SECONDS),
    ):
        upstream.add(says("slow", gate=gate))
        asking = asyncio.create_task(streamed(backend))
        await upstream.saw()
        await backend.retire()
        gate.open()
        assert text_of(await asking) == "slow"
        assert not (backend._client and backend._client.is_open)
        assert await backend.complete(ASKED, seconds=5)
        assert not (backend._client and backend._client.is_open)
        assert upstream.connections_made == 2
