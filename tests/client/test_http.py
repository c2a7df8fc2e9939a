"""The client of our own API: what comes back, and what is known when nothing does."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, route
from bascule.asgi.json import json_response, read_json
from bascule.asgi.serve import Serving
from bascule.asgi.sse import Event, EventStream
from bascule.client.http import ApiClient, ApiError, NotSent, TooLate, Unreachable, open_api
from bascule.clock import SYSTEM_CLOCK
from bascule.errors import InvalidRecord
from bascule.model.json import is_object
from tests.asgi.caller import app_of, bearer, make_tokens
from tests.client.peers import answers, hangs_up, is_silent, nobody, peer
from tests.waits import SOON_SECONDS


async def echo(request: Request) -> Response:
    if request.method == "GET":
        raise Refused("conflict", "changed", details={"current_revision": 7})
    return json_response({"got": await read_json(request)}, etag='"1"')


async def stream(request: Request) -> Response:
    async def source():
        yield Event(event="first", data={"n": 1})
        yield Event(data=await read_json(request))

    return EventStream(source(), SYSTEM_CLOCK)


APP = app_of(
    route("/echo", echo, ["GET", "POST"], permission=OPEN),
    route("/stream", stream, ["POST"], permission=OPEN),
)


async def test_an_answer_comes_with_status_and_tag():
    async with Serving(APP) as server, ApiClient(server.url, None) as client:
        answer = await client.request("POST", "/echo", body={"a": 1})
        assert (answer.status, answer.body, answer.etag) == (200, {"got": {"a": 1}}, '"1"')
        answer = await client.request("POST", "/echo", body=b'{"a":2}')
        assert answer.body == {"got": {"a": 2}}


async def test_a_refusal_is_raised_as_it_was_said():
    async with Serving(APP) as server, ApiClient(server.url, None) as client:
        with pytest.raises(ApiError, match="changed") as refused:
            await client.request("GET", "/echo")
    error = refused.value
    assert (error.status, error.code, error.details) == (412, "conflict", {"current_revision": 7})
    assert is_object(error.body)
    assert error.body["error"]["message"] == "changed"


async def test_a_request_may_be_answered_with_a_stream():
    async with Serving(APP) as server, ApiClient(server.url, None) as client:
        events = client.events("/stream", method="POST", body=[1, 2])
        async with aclosing(events):
            heard = [(event.event, event.data) async for event in events]
    assert heard == [("first", b'{"n":1}'), ("message", b"[1,2]")]


async def test_what_is_no_stream_is_not_read_as_one():
    async with Serving(APP) as server, ApiClient(server.url, None) as client:
        with pytest.raises(Unreachable, match="in place of a stream"):
            await anext(client.events("/echo", method="POST", body={}))


async def test_the_token_is_sent():
    tokens = make_tokens()
    app = app_of(route("/", echo, ["POST"], permission="registry:write"), tokens=tokens)
    token = (await bearer(tokens))["Authorization"].removeprefix("Bearer ")
    async with Serving(app) as server:
        async with ApiClient(server.url, token) as client:
            assert (await client.request("POST", "/", body=1)).status == 200
        async with ApiClient(server.url, None) as client:
            with pytest.raises(ApiError) as refused:
                await client.request("POST", "/", body=1)
    assert refused.value.code == "unauthenticated"


async def test_where_nobody_listens_nothing_was_sent():
    async with ApiClient(nobody(), None) as client:
        with pytest.raises(NotSent):
            await client.request("POST", "/", body={})


async def test_a_request_without_an_answer_is_not_sent_again():
    async with peer(hangs_up) as server, ApiClient(server.url, None) as client:
        with pytest.raises(Unreachable) as lost:
            await client.request("POST", "/", body={})
        assert type(lost.value) is Unreachable
        assert len(server.heads) == 1


async def test_an_answer_that_does_not_come_is_too_late():
    async with peer(is_silent) as server, ApiClient(server.url, None) as client:
        with pytest.raises(TooLate, match="in time"):
            await client.request("POST", "/", body={}, seconds=0.05)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("200 OK", b"<html>"),
        ("502 Bad Gateway", b"<html>"),
        ("500 Internal Server Error", b'{"message": "no"}'),
        ("500 Internal Server Error", b"[]"),
    ],
)
async def test_what_does_not_speak_our_shape_is_said_to_be_another(head: str, body: bytes):
    async with peer(answers(head, body)) as server, ApiClient(server.url, None) as client:
        with pytest.raises(Unreachable):
            await client.request("GET", "/")


async def test_a_caller_who_leaves_takes_the_request_along():
    async with peer(is_silent) as server, ApiClient(server.url, None) as client:
        async with asyncio.timeout(SOON_SECONDS):
            asking = asyncio.create_task(client.request("POST", "/", body={}))
            await server.arrived.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:7070", "ftp://localhost", "http://", "http://[::1", "http://h:99999"),
        *(
            "http://localhost:0",
            "http://localhost?x=1",
            "http://localhost#x",
            "http://u:p@localhost",
        ),
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str):
    with pytest.raises(InvalidRecord, match="url: "):
        open_api(url, "token")


@pytest.mark.parametrize("url", ["http://127.0.0.1:7070", "http://localhost", "http://[::1]:7070"])
def test_plain_http_is_for_this_machine(url: str):
    assert open_api(url, "token").url == url
    with pytest.raises(InvalidRecord, match="in the clear"):
        open_api("http://example.org", "token")
    assert open_api("http://example.org/", "token", insecure=True).url == "http://example.org"


def test_a_file_that_holds_no_certificates_is_named(tmp_path: Path):
    (tmp_path / "ca.pem").write_text("nothing", encoding="utf-8")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(InvalidRecord, match=name):
            open_api("https://example.org", "token", tls_ca=str(tmp_path / name))
