"""A backend over HTTP: what it sends, how it reads, and each way in which a server can fail."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import aclosing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from bascule.loop.backend import UpstreamFailed
from bascule.loop.http_answers import UpstreamLimits
from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.model.secret_use import SecretUse
from bascule.outbound.rules import NodeRules
from bascule.policy.known_values import spellings
from bascule.testing import (
    FakeClock,
    ScriptedUpstream,
    calls,
    chunk,
    fails,
    hangs,
    says,
    sends,
    streams,
)
from bascule.testing.upstream import Gate, Reply
from tests.loop.http_backend import ASKED, KEY, failed, reached, streamed, text_of
from tests.waits import SOON_SECONDS

# --- what is sent


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_carries_the_key_and_the_records_headers(stream: bool):
    async with ScriptedUpstream(key=KEY) as upstream:
        headers = {"X-Org": "acme", "Accept-Encoding": "br", "authorization": "Basic no"}
        async with reached(upstream, headers=headers) as backend:
            if stream:
                assert text_of(await streamed(backend)) == "ok"
            else:
                answer = await backend.complete(ASKED, seconds=5)
                assert answer["choices"][0]["message"]["content"] == "ok"
        [seen] = upstream.chats
    assert seen.headers["X-Org"] == "acme"
    assert seen.headers["Accept-Encoding"] == "identity"
    assert seen.headers["Content-Type"] == "application/json"
    assert seen.json == {**ASKED, "stream": True} if stream else ASKED


async def test_a_whole_completion_is_asked_for_without_the_options_of_a_stream():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        body = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}
        await backend.complete(body, seconds=5)
        assert upstream.chats[0].json == ASKED


async def test_the_key_may_come_from_a_secret_or_a_file(tmp_path: Path):
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n", encoding="utf-8")
    scripted = ScriptedUpstream(key=KEY)
    async with scripted as upstream, reached(upstream, key_ref=f"file://{path}") as backend:
        assert await backend.models() == ["scripted"]
        for reference in ("secret://models", "models"):
            record = BackendRecord(name="b", base_url=upstream.url, key_ref=reference)
            backend = HttpUpstream(record, rules=NodeRules(), environ={}, secrets=Secrets())
            assert await backend.models() == ["scripted"]
            await backend.close()


class Secrets:
    """A secret store with one secret."""

    async def secret(self, name: str, use: SecretUse) -> str:
        del use
        return {"models": KEY}[name]


async def test_without_a_key_no_credential_is_sent():
    async with ScriptedUpstream() as upstream:
        for reference in (None, "${ENV:NO_SUCH_KEY:-}"):
            async with reached(upstream, key_ref=reference) as backend:
                await backend.models()
        assert all("Authorization" not in seen.headers for seen in upstream.requests)


async def test_the_bases_own_path_and_query_stay():
    async with ScriptedUpstream() as upstream:
        base = upstream.url.removesuffix("/v1") + "/deep/v1/?api-version=2"
        async with reached(upstream, base_url=base) as backend:
            await failed(backend)
        assert upstream.requests[0].path == "/deep/v1/chat/completions"


async def test_one_connection_serves_request_after_request():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        for _ in range(3):
            await backend.complete(ASKED, seconds=5)
            await streamed(backend)
            async with backend.forward(b"{}") as answer:
                assert [piece async for piece in answer.chunks]
        assert upstream.connections_made == 1
        assert len(upstream.chats) == 9


async def test_a_server_that_hangs_up_after_streams_is_known_for_it_and_not_run_into():
    scripted = ScriptedUpstream(default=says("several words", hang_up=True))
    async with scripted as upstream, reached(upstream) as backend:
        for _ in range(20):
            assert text_of(await streamed(backend)) == "several words"
        asked = [seen.headers.get("Connection") for seen in upstream.chats]
        assert asked == [None] + ["close"] * 19


async def test_many_requests_go_on_at_once():
    gate = Gate()
    scripted = ScriptedUpstream(default=says("ok", gate=gate))
    async with scripted as upstream, reached(upstream) as backend, asyncio.timeout(10):
        running = [asyncio.create_task(streamed(backend)) for _ in range(20)]
        await upstream.saw(20)
        gate.open()
        assert [text_of(chunks) for chunks in await asyncio.gather(*running)] == ["ok"] * 20


# --- what is refused before anything leaves


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key_ref": "${ENV:MISSING}"}, "the variable MISSING is not set"),
        ({"key_ref": "secret://x"}, "has no secret store"),
        ({"key_ref": "models-key"}, "there is no secret named 'models-key'"),
        ({"key_ref": "sk-0123456789abcdefgh"}, "must be a reference"),
        ({"base_url": "http://192.0.2.1/v1", "insecure": True}, "documentation address"),
        ({"base_url": "http://models.example/v1"}, "plain http"),
        ({"base_url": "http://10.1.2.3/v1", "insecure": True}, "a private address"),
        ({"base_url": "https://user:pass@models.example/v1"}, "user name or password"),
        ({"base_url": "ftp://models.example"}, "is not a URL"),
        ({"headers": {"X-Org": "${ENV:BREAK}"}}, "line break"),
    ],
)
async def test_a_backend_that_may_not_or_cannot_be_reached_says_why(
    fields: dict[str, Any], said: str
):
    async with ScriptedUpstream() as upstream:
        plain: dict[str, Any] = {"name": "b", "base_url": upstream.url, **fields}
        backend = HttpUpstream(BackendRecord(**plain), rules=NodeRules(), environ={"BREAK": "a\nb"})
        error = await failed(backend)
        assert said in str(error)
        assert (error.status, error.timed_out) == (None, False)
        assert not upstream.requests
        await backend.close()


async def test_a_variable_that_records_may_not_read_is_refused_and_may_be_allowed_later():
    scripted = ScriptedUpstream(key=KEY)
    async with scripted as upstream, reached(upstream, rules=NodeRules(variables=())) as backend:
        assert "does not let records read the variable B_KEY" in str(await failed(backend))
        async with reached(upstream, rules=NodeRules(variables=("B_*",))) as backend:
            assert await backend.complete(ASKED, seconds=5)


async def test_a_name_that_leads_to_a_private_address_is_refused_after_it_is_resolved():
    record = BackendRecord(name="b", base_url="http://models.example:9/v1", insecure=True)

    async def elsewhere(_host: str, _port: int) -> list[str]:
        return ["10.0.0.7"]

    backend = HttpUpstream(record, rules=NodeRules(), environ={}, resolve=elsewhere)
    error = await failed(backend)
    assert "does not connect to 10.0.0.7" in str(error)
    await backend.close()


async def test_a_server_that_is_not_there_is_unreachable():
    async with ScriptedUpstream() as upstream:
        await upstream.stop()
        async with reached(upstream) as backend:
            error = await failed(backend)
    assert "backend b: cannot be reached" in str(error)
    assert (error.status, error.timed_out) == (None, False)


# --- errors that a server answers with


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_openais_shape_comes_back_in_it(stream: bool):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(fails(404, "no such model", code="model_not_found"))
        error = await failed(backend, stream=stream)
    assert error.status == 404
    assert error.error == {
        "message": "no such model",
        "type": "scripted",
        "param": None,
        "code": "model_not_found",
    }
    assert str(error) == "the backend says: no such model"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({"Retry_After": "7"}, 7.0),
        ({"Retry_After": "0.5"}, 0.5),
        ({"Retry_After": formatdate(FakeClock().now() + 30, usegmt=True)}, 30.0),
        ({"Retry_After": formatdate(FakeClock().now() - 30, usegmt=True)}, 0.0),
        ({"Retry_After": "-3"}, 0.0),
        ({"Retry_After": "1e12"}, 86_400.0),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "nan"}, None),
        ({"retry_after_ms": "250", "Retry_After": "9"}, 0.25),
        ({}, None),
    ],
)
async def test_how_long_to_wait_is_read_in_every_form(
    header: dict[str, str], seconds: float | None
):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(fails(429, "slow down", **header))
        error = await failed(backend)
    assert (error.status, error.retry_after) == (429, seconds)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": "model not loaded"}', "model not loaded"),
        ('{"detail": "Not Found"}', "Not Found"),
        ('{"object": "error", "message": "too long", "code": 400}', "too long"),
        ('{"error": {"code": 3}}', "the backend gave no reason"),
        ('{"detail": [{"loc": ["body"]}]}', "[{'loc': ['body']}]"),
    ],
)
async def test_errors_of_other_shapes_come_out_in_openais(body: str, message: str):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(sends(body, 500))
        error = await failed(backend)
    assert error.error["message"] == message
    assert set(error.error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", ["<html>Bad Gateway</html>", "", "[1]", "x" * 200_000])
async def test_an_error_that_is_no_json_is_told_by_its_status(body: str):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(sends(body, 502, Content_Type="text/html"))
        error = await failed(backend)
    assert (error.status, error.error) == (502, None)
    assert str(error) == "the backend answered HTTP 502 (text/html)"


async def test_a_key_that_a_server_repeats_is_masked():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(fails(401, f"Incorrect key {KEY}" + "." * 1000, code=KEY))
        error = await failed(backend)
    assert error.error["message"].startswith("Incorrect key ***...")
    assert len(error.error["message"]) < 600
    assert error.error["code"] == "***"


async def test_a_key_is_masked_in_every_spelling_and_in_headers_and_models_too():
    """Servers quote, encode and log what they were sent."""
    told = " ".join(spellings(KEY))
    async with ScriptedUpstream(models=[f"m {told}"]) as upstream, reached(upstream) as backend:
        models = await backend.models()
        upstream.default = fails(500, told, x_request_id=told)
        error = await failed(backend)
        async with backend.forward(b"{}") as answer:
            body = b"".join([piece async for piece in answer.chunks]).decode()
        said = f"{models} {error} {answer.headers} {body}"
        assert [form for form in spellings(KEY) if form in said] == []


async def test_a_key_that_was_refused_is_read_anew_for_the_next_request(tmp_path: Path):
    path = tmp_path / "key"
    path.write_text("an-old-key", encoding="utf-8")
    scripted = ScriptedUpstream(key=KEY)
    async with scripted as upstream, reached(upstream, key_ref=f"file://{path}") as backend:
        assert (await failed(backend)).status == 401
        path.write_text(KEY, encoding="utf-8")
        assert await backend.complete(ASKED, seconds=5)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_under_the_flag_of_success_is_an_error(stream: bool):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        body = {"error": {"message": "overloaded", "code": 503}}
        upstream.add(streams(chunk("a"), body) if stream else sends(body))
        error = await failed(backend, stream=stream)
    assert (error.status, error.error["message"]) == (503, "overloaded")


async def test_no_redirect_is_followed_and_none_is_handed_on():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        elsewhere = {"Location": f"{upstream.url}/models"}
        upstream.add(*[Reply(body=b"", status=307, headers=elsewhere)] * 2)
        assert "redirect (HTTP 307)" in str(await failed(backend))
        with pytest.raises(UpstreamFailed, match="redirect"):
            async with backend.forward(b"{}"):
                pass
        assert [seen.verb for seen in upstream.requests] == ["POST", "POST"]


# --- answers that cannot be read


GARBLED: dict[str, bytes] = {
    "no json": b"{",
    "no object": b"[]",
    "no choices": b'{"id": "x"}',
    "empty choices": b'{"choices": []}',
    "choices of another kind": b'{"choices": [3]}',
    "a choice without a message": b'{"choices": [{"index": 0}]}',
    "a key twice": b'{"choices": [], "choices": []}',
    "not a number": b'{"choices": [{"message": {}}], "x": NaN}',
    "too deep": b'{"choices": ' + b"[" * 100 + b"]" * 100 + b"}",
    "not utf-8": b'{"choices": "\xff"}',
    "nothing": b"",
}


@pytest.mark.parametrize("case", GARBLED)
async def test_a_garbled_answer_fails_the_request(case: str):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(sends(GARBLED[case]))
        error = await failed(backend)
        assert "garbled" in str(error)
        assert error.status is None
        assert await backend.complete(ASKED, seconds=5)


@pytest.mark.parametrize(
    ("reply", "stream", "said"),
    [
        (sends("hello", Content_Type="text/html"), False, "'text/html', not application/json"),
        (sends("{}", Content_Type="application/json"), True, "not text/event-stream"),
        (sends(b"x" * 5000), False, "over the limit of 4000 bytes"),
        (streams(*[chunk("x")] * 100), True, "more than 4000 bytes"),
        (streams(b"data: " + b"x" * 3000), True, "more than 2000 bytes"),
        (sends(gzip.compress(b"{}"), Content_Encoding="gzip"), False, "compressed"),
        (streams(chunk("a"), b"data: {nonsense\n\n"), True, "garbled"),
        (streams(chunk("a"), b"data: 3\n\n"), True, "garbled"),
        (streams(chunk("a"), done=False), True, "cut"),
        (streams(b": nothing but a comment\n\n", done=False), True, "cut"),
        (streams(chunk("a", finish="stop"), chunk("b", index=1), done=False), True, "cut"),
    ],
)
async def test_what_is_not_what_was_asked_for_fails_the_request(
    reply: Reply, stream: bool, said: str
):
    limits = UpstreamLimits(body_bytes=4000, event_bytes=2000, stream_bytes=4000)
    async with ScriptedUpstream() as upstream, reached(upstream, limits=limits) as backend:
        upstream.add(reply)
        error = await failed(backend, stream=stream)
        assert said in str(error)
        assert (error.status, error.timed_out) == (None, False)


# --- streams


async def test_a_stream_is_the_same_wherever_it_is_split():
    wire = b"".join(
        b": ping\r\n\r\ndata: %b\r\n\r\n" % json.dumps(one, ensure_ascii=False).encode()
        for one in (chunk("Grüße"), chunk(" ☂"), chunk(finish="stop"))
    )
    wire += b"event: x\r\ndata:[DONE]\r\n\r\n"
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        for at in range(1, len(wire)):
            upstream.add(streams(wire[:at], wire[at:], done=False))
            chunks = await streamed(backend)
            assert (text_of(chunks), len(chunks)) == ("Grüße ☂", 3)


async def test_chunks_are_given_as_they_arrive():
    gate = Gate()
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(streams(chunk("a"), chunk("b", finish="stop"), gate=gate))
        async with aclosing(backend.stream(ASKED, seconds=5)) as chunks:
            gate.let(2)
            assert text_of([await anext(chunks)]) == "a"
            gate.open()
            assert text_of([one async for one in chunks]) == "b"


async def test_a_finish_reason_ends_a_stream_as_well_as_done_does():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        usage = {"choices": [], "usage": {"total_tokens": 3}}
        upstream.add(streams(chunk("a", finish="stop"), usage, done=False))
        upstream.add(streams(chunk("a")))
        assert len(await streamed(backend)) == 2
        assert len(await streamed(backend)) == 1


async def test_what_follows_the_end_of_a_stream_is_not_waited_for():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(hangs(streams(chunk("a", finish="stop")), after=2))
        assert text_of(await streamed(backend)) == "a"
        async with asyncio.timeout(SOON_SECONDS):
            await upstream.chats[0].hung_up.wait()


async def test_tool_calls_pass_through_unchanged():
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(calls(("t", {"a": [1]})))
        chunks = await streamed(backend)
    deltas = [
        c["delta"]["tool_calls"][0]
        for one in chunks
        for c in one["choices"]
        if "tool_calls" in c["delta"]
    ]
    assert deltas[0]["function"]["name"] == "t"
    assert "".join(delta["function"]["arguments"] for delta in deltas) == '{"a": [1]}'


# --- silence and disconnects


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("head", [False, True])
async def test_a_server_that_hangs_runs_into_the_deadline(stream: bool, head: bool):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        upstream.add(hangs(after=1 if stream else 0) if head else says("late", gate=Gate()))
        error = await failed(backend, stream=stream, seconds=0.05)
        assert (error.status, error.timed_out) == (None, True)
        async with asyncio.timeout(SOON_SECONDS):
            await upstream.chats[0].hung_up.wait()


async def test_the_records_own_limit_counts_where_it_is_lower():
    scripted = ScriptedUpstream(default=hangs())
    async with scripted as upstream, reached(upstream, request_timeout_ms=50) as backend:
        assert (await failed(backend, seconds=60)).timed_out
        with pytest.raises(UpstreamFailed) as raised:
            async with backend.forward(b"{}") as answer:
                _ = [piece async for piece in answer.chunks]
        assert raised.value.timed_out


@pytest.mark.parametrize("pieces", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnect_fails_the_request_and_is_not_tried_again(pieces: int, stream: bool):
    async with ScriptedUpstream() as upstream, reached(upstream) as backend:
        reply = streams(chunk("a"), cut_after=pieces) if stream else says("ok", cut_after=0)
        upstream.add(reply)
        error = await failed(backend, stream=stream)
        assert "broke off" in str(error)
        assert (error.status, error.timed_out) == (None, False)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_closes_the_upstream_request_at_once(stream: bool):
    scripted = ScriptedUpstream(default=hangs(after=1))
    async with scripted as upstream, reached(upstream) as backend, asyncio.timeout(SOON_SECONDS):
        asking = asyncio.create_task(
            streamed(backend) if stream else backend.complete(ASKED, seconds=60)  # pyright: ignore[reportArgumentType] - either is awaited
        )
        seen = await upstream.saw()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        await seen.hung_up.wait()


async def test_leaving_a_stream_early_closes_the_upstream_request():
    scripted = ScriptedUpstream(default=hangs(streams(chunk("a")), after=1))
    async with scripted as upstream, reached(upstream) as backend, asyncio.timeout(SOON_SECONDS):
        async with aclosing(backend.stream(ASKED, seconds=60)) as chunks:
            await anext(chunks)
        await upstream.chats[0].hung_up.wait()
