"""The scripted server over HTTP at its worst: each fault is the fault it claims to be."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bascule.testing import FakeClock, ScriptedHttpServer, ScriptedServer, do
from bascule.testing.http_faults import HTTP_ONLY
from bascule.testing.peer.faults import BROKEN
from bascule.testing.server import OVER_HTTP
from tests.testing.http_caller import Caller, events, next_frame

Start = Callable[..., Awaitable[Caller]]
LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Serve tools of the given behaviours and be their client."""
    async with asyncio.timeout(20), AsyncExitStack() as stack:

        async def begin(era: str = "modern", settings: Any = None, /, **behaviours: Any) -> Caller:
            script = ScriptedServer(behaviours={"echo": "echo", **behaviours})
            http = await stack.enter_async_context(ScriptedHttpServer(script, **(settings or {})))
            web = await stack.enter_async_context(aiohttp.ClientSession())
            caller = Caller(http, web, era)
            await caller.greet()
            return caller

        yield begin


def call_of(caller: Caller, name: str, **arguments: Any) -> Any:
    return caller.post(caller.message("tools/call", name=name, arguments=arguments))


async def raw(caller: Caller, name: str, wanted: int | None = None) -> bytes:
    """So many bytes of an answer as they come, or all until the server hangs up."""
    message = caller.message("tools/call", name=name, arguments={})
    body = json.dumps(message).encode()
    head = {**caller.headers(message), "Host": "x", "Content-Type": "application/json"}
    lines = [f"{key}: {value}" for key, value in {**head, "Content-Length": len(body)}.items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", caller.http.port)
    writer.write("\r\n".join(("POST /mcp HTTP/1.1", *lines, "", "")).encode() + body)
    try:
        return await (reader.read() if wanted is None else reader.readexactly(wanted))
    finally:
        writer.close()


@pytest.mark.parametrize("step", ["reset", "die", do("progress", count=1, then="reset")])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_one_connection_breaks_and_its_sibling_lives(start, era, step, tmp_path):
    gate = do("gate", path=str(tmp_path / "gate"))
    caller = await start(era, slow=gate, broken=step)
    async with asyncio.TaskGroup() as group:
        sibling = group.create_task(caller.text("slow", text="alive"))
        with pytest.raises(LOST):
            await caller.ask("tools/call", name="broken", _meta={"progressToken": 1})
        (tmp_path / "gate").touch()
    assert sibling.result() == "alive"


async def test_a_reset_is_seen_as_one(start):
    caller = await start("modern", None, t="reset")
    with pytest.raises(ConnectionResetError):
        await raw(caller, "t", 1)
    caller = await start("modern", None, t="die")
    with pytest.raises(asyncio.IncompleteReadError):
        await raw(caller, "t", 1)


@pytest.mark.parametrize(
    ("step", "status", "kind", "body"),
    [
        (do("http", status=503, body="busy", type="text/plain"), 503, "text/plain", "busy"),
        (do("http", type="text/html"), 200, "text/html", None),
        (do("http", body='{"id":@ID@'), 200, "application/json", '{"id":1'),
        ("not_json", 200, "application/json", "this is not JSON"),
        (do("redirect", to="http://127.0.0.2:1/"), 307, "application/json", ""),
        ("session_lost", 404, "application/json", None),
    ],
)
@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_a_response_can_be_anything(start, answer, step, status, kind, body):
    caller = await start("modern", {"answer": answer}, t=step)
    async with call_of(caller, "t") as response:
        as_events = answer == "sse" and step == "not_json"
        expected = "text/event-stream" if as_events else kind
        assert (response.status, response.content_type) == (status, expected)
        text = await response.text()
        assert body is None or body in text
    assert response.headers.get("Location", "http://127.0.0.2:1/") == "http://127.0.0.2:1/"


@pytest.mark.parametrize("kind", sorted(BROKEN))
@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_every_broken_frame_of_stdio_reaches_the_body(start, answer, kind):
    caller = await start("modern", {"answer": answer}, t=kind)
    async with call_of(caller, "t", text="hi") as response:
        body = await response.read()
    several = kind == "duplicate_reply"
    assert response.status == 200
    assert (response.content_type == "text/event-stream") == (answer == "sse" or several)
    assert body.count(b"data: ") == (2 if several else answer == "sse")
    assert await caller.text("echo", text="next") == "next"


async def test_a_wrong_answer_may_come_before_the_right_one(start):
    caller = await start("modern", None, t=do("wrong_id", then="echo"))
    frames = await caller.frames("tools/call", name="t", arguments={"text": "hi"})
    assert [frame["id"] for frame in frames] == [1_000_001, 1]


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_stream_ends_early_for_good(start, abrupt):
    caller = await start("legacy", None, t=do("stream_ends", abrupt=abrupt))
    if abrupt:
        with pytest.raises(LOST):
            await caller.frames("tools/call", name="t")
    else:
        assert await caller.frames("tools/call", name="t") == []


async def test_a_stream_with_ids_of_its_own_ends_early_and_goes_on(start):
    caller = await start("legacy", None, t=do("stream_ends", ids=True, retry_ms=1, then="echo"))
    async with call_of(caller, "t", text="hi") as response:
        (fields,) = [fields async for fields, _ in events(response)]
    assert (fields["retry"], fields["data"]) == ("1", "")
    async with caller.listen(**{"Last-Event-ID": fields["id"]}) as response:
        assert (await next_frame(events(response)))["result"]["content"][0]["text"] == "hi"


async def test_a_slow_peer_drips_for_as_long_as_it_is_listened_to(start):
    steps = {kind: do(kind, seconds=0) for kind in ("slow_head", "slow_body", "comments")}
    caller = await start("modern", None, **steps)
    head = await raw(caller, "slow_head", 200)
    assert head.startswith(b"HTTP/1.1 200 OK\r\nX-Slow: x")
    assert b"\n\r\n" not in head
    assert b" \r\n1\r\n \r\n" in await raw(caller, "slow_body", 2000)
    assert (await raw(caller, "comments", 2000)).count(b": still here\n\n") > 20
    assert await caller.text("echo", text="and nobody else waits") == "and nobody else waits"


async def test_a_slow_peer_keeps_the_pace_of_the_clock_it_was_given(start):
    clock = FakeClock()
    caller = await start("modern", {"clock": clock}, t=do("comments", seconds=30))
    async with call_of(caller, "t") as response:
        for _ in range(3):
            assert await response.content.readline() == b": still here\n"
            assert await response.content.readline() == b"\n"
            await clock.advance(30)


async def test_a_gzip_bomb_is_a_good_answer_a_thousand_times_its_size(start):
    caller = await start("modern", None, t=do("gzip_bomb", bytes=16 << 20))
    message = caller.message("tools/call", name="t", arguments={})
    sent = {"headers": caller.headers(message), "json": message}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as web,
        web.post(caller.http.url, **sent) as response,
    ):
        assert response.headers["Content-Encoding"] == "gzip"
        body = await response.read()
    assert len(body) < (16 << 20) / 900
    frame = json.loads(gzip.decompress(body))
    assert len(frame["result"]["content"][0]["text"]) == 16 << 20


@pytest.mark.parametrize("answer", ["json", "sse"])
async def test_an_answer_can_be_huge_or_without_end(start, answer):
    steps = {"huge": do("huge_line", bytes=3_000_000), "endless": do("no_newline", bytes=10**9)}
    caller = await start("modern", {"answer": answer}, **steps)
    (frame,) = await caller.frames("tools/call", name="huge") if answer == "json" else [None]
    assert frame is None or len(frame["result"]["content"][0]["text"]) > 2_999_000
    assert b"\n\n" not in (await raw(caller, "endless", 1_000_000)).partition(b"\r\n\r\n")[2]
    assert await caller.text("echo", text="next") == "next"


async def test_a_flood_comes_before_the_answer(start):
    caller = await start("modern", None, t=do("flood", count=1200))
    frames = await caller.frames("tools/call", name="t", arguments={"text": "dry"})
    assert len(frames) == 1201
    assert frames[-1]["result"]["content"][0]["text"] == "dry"


async def test_sessions_are_forgotten_all_at_once(start):
    caller = await start("legacy")
    async with caller.listen() as listening:
        caller.http.forget_sessions()
        assert await listening.read() == b""
    async with call_of(caller, "echo") as response:
        assert response.status == 404
    await caller.greet()
    assert await caller.text("echo", text="new") == "new"


async def test_a_restart_keeps_the_port_and_nothing_else(start, tmp_path):
    caller = await start("legacy", None, slow=do("gate", path=str(tmp_path / "never")))
    port, made = caller.http.port, caller.http.connections_made
    doomed = asyncio.gather(caller.text("slow"), return_exceptions=True)
    await caller.http.saw("tools/call")
    await caller.http.restart()
    assert isinstance((await doomed)[0], LOST)
    assert (caller.http.port, caller.http.sessions, made) == (port, [], 1)
    async with call_of(caller, "echo") as response:
        assert response.status == 404
    await caller.greet()
    assert await caller.text("echo", text="again") == "again"


async def test_a_stopped_server_is_not_there(start):
    caller = await start()
    await caller.http.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await caller.call("echo")
    await caller.http.start()
    assert await caller.text("echo", text="back") == "back"


async def test_connections_are_reused_until_they_are_closed_in_silence(start):
    caller = await start("modern", None, last=do("close_after"))
    for _ in range(2):
        await caller.call("echo")
    assert [(seen.connection, seen.nth) for seen in caller.http.requests] == [(1, 1), (1, 2)]
    answer = await raw(caller, "last")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" not in answer.lower()


async def test_idle_connections_are_closed_and_busy_ones_are_not(start, tmp_path):
    caller = await start("modern", None, slow=do("gate", path=str(tmp_path / "gate")))
    async with asyncio.TaskGroup() as group:
        idle = group.create_task(raw(caller, "echo"))
        busy = group.create_task(caller.text("slow", text="kept"))
        await caller.http.saw("tools/call", 2)
        while not idle.done():
            caller.http.close_idle()
            await asyncio.wait({idle}, timeout=0.01)
        assert caller.http.connections == 1
        (tmp_path / "gate").touch()
    assert busy.result() == "kept"


async def test_a_request_on_a_kept_connection_can_be_chosen_to_fail(start):
    caller = await start()
    caller.http.choose = lambda seen: "reset" if seen.nth == 2 else None
    await caller.call("echo")
    async with aiohttp.ClientSession() as other:
        assert await Caller(caller.http, other, "modern").text("echo", text="new") == "new"
    message = caller.message("tools/call", name="echo", arguments={})
    with pytest.raises(LOST):
        async with caller.post(message):
            pass


async def test_faults_are_injected_for_some_requests_and_then_over(start):
    caller = await start("legacy")
    caller.http.inject(do("http", status=500), method="tools/call", times=2)
    caller.http.inject(do("http", status=405), verb="GET")
    assert (await caller.ask("ping"))["result"] == {}
    for status in (500, 500, 200):
        async with call_of(caller, "echo") as response:
            assert response.status == status
    for status in (405, 200):
        async with caller.listen() as response:
            assert response.status == status
    with pytest.raises(ValueError, match="no such behaviour"):
        caller.http.inject("nonsense")


async def test_a_token_is_asked_for_and_may_change(start):
    caller = await start("modern", {"token": "old"})
    for token, sent, status in (("old", None, 401), ("old", "old", 200), ("new", "old", 401)):
        caller.http.token = token
        shown = {} if sent is None else {"Authorization": f"Bearer {sent}"}
        async with caller.post(caller.message("tools/list"), **shown) as response:
            assert response.status == status
            assert (response.headers.get("WWW-Authenticate") == "Bearer") == (status == 401)


async def test_a_path_can_lead_elsewhere(start):
    caller = await start("modern", {"redirects": {"/old": "/mcp"}})
    message = caller.message("tools/call", name="echo", arguments={"text": "hi"})
    url = caller.http.url.replace("/mcp", "/old")
    async with caller.web.post(url, json=message, headers=caller.headers(message)) as response:
        assert [step.status for step in response.history] == [307]
        assert (await response.json())["result"]["content"][0]["text"] == "hi"


async def test_the_oldest_dialect_fails_at_its_post_or_names_a_stranger(start):
    settings = {"dialects": ("sse",), "endpoint": "http://127.0.0.2:1/messages"}
    caller = await start("modern", settings, t=do("http", status=500))
    async with caller.web.get(caller.http.url) as response:
        _, place = await anext(events(response))
        assert place == "http://127.0.0.2:1/messages"
        url = f"{caller.http.url}/messages?session_id={caller.http.sessions[0]}"
        params = {"name": "t", "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        async with caller.web.post(url, json=message) as posted:
            assert posted.status == 500
    async with caller.web.post(caller.http.url, json=message) as posted:
        assert posted.status == 405


async def test_faults_on_the_one_stream_of_the_oldest_dialect_leave_it_open(start):
    steps = {"comments": "comments", "huge": do("huge_line", bytes=100_000)}
    caller = await start("modern", {"dialects": ("sse",), "answer": "sse"}, **steps)
    async with caller.web.get(caller.http.url) as response:
        stream = events(response)
        _, place = await anext(stream)
        url = caller.http.url.removesuffix("/mcp") + place
        for number, name in enumerate(("comments", "huge", "echo")):
            params = {"name": name, "arguments": {}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            async with caller.web.post(url, json=message) as posted:
                assert posted.status == 202
        assert [(await next_frame(stream))["id"] for _ in range(2)] == [1, 2]


async def test_it_speaks_tls(start, tmp_path):
    certificate, key = certify(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    caller = await start("modern", {"tls": served}, reset="reset")
    assert caller.http.url.startswith("https://")
    trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(certificate)))
    async with aiohttp.ClientSession(connector=trusting) as web:
        caller.web = web
        assert await caller.text("echo", text="hidden") == "hidden"
        with pytest.raises(LOST):
            await caller.call("reset")


def certify(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that only its own file vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "scripted")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_every_behaviour_over_http_has_a_name_that_scripts_know():
    assert set(HTTP_ONLY) == OVER_HTTP
