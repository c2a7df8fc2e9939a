"""What a client may send wrong to a real HTTP server: a coded answer, and the next call works."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bascule.doors.gateway.log_levels import LOG_LEVELS
from bascule.wire.era import LEGACY, META, MODERN
from tests.doors.gateway.raw_http import (
    PING,
    Fields,
    RawAnswer,
    exchanged,
    fields_of,
    head_of,
    line_of,
    posted,
)
from tests.doors.gateway.schemas import check
from tests.doors.gateway.stream_site import Peer, Site, Stream, serving
from tests.doors.gateway.test_calls import GENERATIONS, READ
from tests.scale import scaled

pytestmark = pytest.mark.requirement("gateway:bad-input")
Json = dict[str, Any]
SLOW = (HealthCheck.too_slow,)
ENVELOPE: Json = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}}
NOT_CODED = 500
ROUTES = {"all": "/mcp", "one": "/mcp/servers/fs"}


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


def base64ed(value: str) -> str:
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def modern_fields(message: Json) -> Json:
    """Return the headers that a modern message needs, whatever it is called."""
    method, params = message.get("method"), message.get("params")
    found = {"MCP-Protocol-Version": MODERN}
    if isinstance(method, str) and method.isascii() and method.isprintable():
        found["Mcp-Method"] = method
    field = "uri" if method == "resources/read" else "name"
    named = params.get(field) if isinstance(params, dict) else None
    return found | ({"Mcp-Name": base64ed(named)} if isinstance(named, str) else {})


async def last_of(stream: Stream) -> Json:
    """Return the answer to a request; of a stream, its last message."""
    if stream.headers.get("content-type") != "text/event-stream":
        return await stream.body() if stream.headers.get("content-length", "0") != "0" else {}
    found: Json = {}
    while (message := await stream.next()) is not None:
        found = message
    return found


async def works(peer: Peer) -> None:
    """Make the next call; it must be answered rightly."""
    answer = await peer.request("tools/call", name=peer_name(peer), arguments={})
    body = await answer.body()
    done(peer, answer)
    assert body["result"]["content"] == [{"type": "text", "text": "done"}]


def peer_name(peer: Peer) -> str:
    return READ if peer.route == "/mcp" else "read"


def done(peer: Peer, stream: Stream) -> None:
    stream.close()
    peer.site.streams.remove(stream)


# --- what is no message

NO_MESSAGE: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", -32700),
    "no JSON": (b"{", -32700),
    "two values": (PING + PING, -32700),
    "a mark of byte order": (b"\xef\xbb\xbf" + PING, -32700),
    "UTF-16": (PING.decode().encode("utf-16"), -32700),
    "bytes that are no text": (PING.replace(b"ping", b"p\xffng"), -32700),
    "half a surrogate": (PING.replace(b"ping", b"\\ud800"), -32700),
    "a key twice": (PING.replace(b"{", b'{"id":2,', 1), -32700),
    "a key twice, deep": (
        PING.replace(b"}", b',"params":{"a":{"b":1,"b":1}}}'),
        -32700,
    ),
    "a key twice, escaped": (PING.replace(b"{", b'{"\\u0069d":2,', 1), -32700),
    "NaN": (PING.replace(b"1,", b"NaN,"), -32700),
    "Infinity": (PING.replace(b"1,", b"-Infinity,"), -32700),
    "more than a float": (PING.replace(b"1,", b"1e999,"), -32700),
    "too many digits": (PING.replace(b"1,", b"1" * 5000 + b","), -32700),
    "too deep": (PING.replace(b"}", b',"params":' + b"[" * 65 + b"]" * 65 + b"}"), -32700),
    "far too deep": (PING.replace(b"}", b',"params":' + b"[" * 90_000 + b"}"), -32700),
    "a batch": (b"[%b,%b]" % (PING, PING), -32600),
    "an empty batch": (b"[]", -32600),
    "a number": (b"5", -32600),
    "null": (b"null", -32600),
    "no members": (b"{}", -32600),
    "no version": (PING.replace(b'"jsonrpc":"2.0",', b""), -32600),
    "another version": (PING.replace(b"2.0", b"1.0"), -32600),
    "keys in capitals": (PING.replace(b"method", b"METHOD"), -32600),
    "a method that is a number": (PING.replace(b'"ping"', b"5"), -32600),
    "an id that is null": (PING.replace(b"1,", b"null,"), -32600),
    "an id that is a fraction": (PING.replace(b"1,", b"1.0,"), -32600),
    "an id that is true": (PING.replace(b"1,", b"true,"), -32600),
    "an id that is a list": (PING.replace(b"1,", b"[1],"), -32600),
    "a long id": (PING.replace(b"1,", b'"%b",' % (b"i" * 257)), -32600),
    "parameters in a list": (PING.replace(b"}", b',"params":[]}'), -32602),
    "parameters that are null": (PING.replace(b"}", b',"params":null}'), -32602),
    "a notification with an id": (PING.replace(b"ping", b"notifications/initialized"), -32600),
    "a result nobody asked for": (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
    "an error nobody asked for": (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
        -32600,
    ),
}


@GENERATIONS
async def test_what_is_no_message_is_refused_and_the_connection_goes_on(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    headers: Fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "ping")] if modern else []
    line = await line_of(peer)
    for name, (body, code) in NO_MESSAGE.items():
        line.writer.write(posted(peer, body, headers))
        answer = await line.answer()
        assert (answer.status, answer.json["error"]["code"]) == (400, code), name
        check(answer.json, MODERN if modern else LEGACY[0], sender="server")
        await works(peer)


# --- too much

OVER = 4 * 1024 * 1024 + 1


async def test_a_body_that_says_it_is_too_long_is_refused_unread(site: Site):
    peer = await site.peer(modern=False)
    sent = [*fields_of(peer), ("Content-Type", "application/json"), ("Content-Length", str(OVER))]
    answer = await exchanged(peer, head_of("POST", "/mcp", sent))
    assert (answer.status, answer.json["error"]["data"]["code"]) == (413, "body_too_large")
    await works(peer)


async def test_a_body_in_chunks_that_gets_too_long_is_refused(site: Site):
    peer = await site.peer(modern=False)
    chunked = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    line = await line_of(peer)
    line.writer.write(head_of("POST", "/mcp", [*fields_of(peer), *chunked]))
    for _ in range(OVER // 65536 + 1):
        line.writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
    answer = await line.answer()
    assert (answer.status, answer.json["error"]["data"]["code"]) == (413, "body_too_large")
    await works(peer)


async def test_a_body_of_the_greatest_length_is_read(site: Site):
    peer = await site.peer(modern=False)
    answer = await exchanged(peer, posted(peer, PING + b" " * (OVER - 1 - len(PING))))
    assert (answer.status, answer.json["result"]) == (200, {})


# --- heads


def twice(name: str, value: str) -> Fields:
    return [(name, value), (name, value)]


async def answered(peer: Peer, more: Fields, body: bytes = PING) -> RawAnswer:
    return await exchanged(peer, posted(peer, body, more))


async def test_a_header_that_says_who_speaks_must_not_be_there_twice(site: Site):
    peer, other = await site.peer(modern=False), await site.peer(modern=False)
    for name, value, code in (
        ("Authorization", f"Bearer {peer.token}", -32600),
        ("Authorization", f"Bearer {other.token}", -32600),
        ("authorization", "", -32600),
        ("Mcp-Session-Id", peer.session, -32600),
        ("mcp-session-id", other.session, -32600),
        ("Host", "elsewhere", -32600),
        ("X-Bascule-Tools-Allow", "read", None),
    ):
        answer = await answered(peer, [(name, value)])
        assert answer.json.get("error", {}).get("code") == code, name
        assert answer.status == (400 if code else 200), name
    narrowed = await answered(peer, twice("X-Bascule-Tools-Allow", "read"))
    assert narrowed.status == 400
    for verb in ("GET", "DELETE"):
        sent = [*fields_of(peer), ("Mcp-Session-Id", other.session)]
        assert (await exchanged(peer, head_of(verb, "/mcp", sent))).status == 400
    await works(peer)


@pytest.mark.parametrize(
    "name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Text", "mcp-param-x"]
)
async def test_a_header_that_repeats_the_body_must_not_be_there_twice(site: Site, name: str):
    peer = await site.peer(modern=True)
    right = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "server/discover"}
    value = right.pop(name, "x")
    sent = [*right.items(), *twice(name, value)]
    answer = await answered(peer, sent, json.dumps(DISCOVER).encode())
    assert (answer.status, answer.json["error"]["code"]) == (400, -32020)
    await works(peer)


async def test_a_notification_is_not_taken_under_the_name_of_another(site: Site):
    peer = await site.peer(modern=True)
    body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    own, other = ("Mcp-Method", "notifications/cancelled"), ("Mcp-Method", "tools/list")
    for sent, status in (([own], 202), ([other], 400), ([own, other], 400), ([own, own], 400)):
        answer = await answered(peer, [("MCP-Protocol-Version", MODERN), *sent], body)
        assert answer.status == status
        assert not answer.body or answer.json["error"]["code"] == -32020
    await works(peer)


NAMES: dict[str, tuple[str, bool]] = {
    "itself": (READ, True),
    "in base64": (base64ed(READ), True),
    "in other letters": (READ.upper(), False),
    "another": ("mcp__fs__write", False),
    "with a line after it, in base64": (base64ed(f"{READ}\r\nX: y"), False),
    "with a space after it, in base64": (base64ed(f"{READ} "), False),
    "base64 without its end": (base64ed(READ)[:-2], False),
    "base64 with spaces": (base64ed(READ).replace("?bWNw", "? bWNw"), False),
    "base64 with bits left over": (
        f"=?base64?{base64.b64encode(READ.encode()).decode()[:-2]}1=?=",
        False,
    ),
    "base64 in capitals": (base64ed(READ).replace("base64", "BASE64"), False),
    "no text in base64": (f"=?base64?{base64.b64encode(bytes([255, 254])).decode()}?=", False),
    "nothing in base64": ("=?base64??=", False),
    "nothing": ("", False),
    "letters beyond ASCII": ("mcp__fs__r\xe9ad", False),
}


async def test_a_name_in_the_head_is_the_bodys_or_the_call_is_refused(site: Site):
    peer = await site.peer(modern=True)
    params = {"name": READ, "arguments": {}, "_meta": ENVELOPE}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    for case, (name, passes) in NAMES.items():
        site.world.caller.sent.clear()
        sent = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", name)]
        answer = await answered(peer, sent, json.dumps(body).encode())
        found = answer.status, answer.json.get("error", {}).get("code")
        assert found == ((200, None) if passes else (400, -32020)), case
        assert len(site.world.caller.sent) == passes
        await works(peer)


UNCLEAR = (
    *("Mcp-Name: a\r\n b", "Mcp-Name: a\x01b", "Mcp-Name: a\x00b", "Mcp-Name : a", "no colon"),
    *("Mcp-Session-Id: a\r\n\tb", "Content-Length: 3", "Content-Length: +5"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
)


async def test_a_head_that_two_readers_could_read_differently_is_refused(site: Site):
    peer = await site.peer(modern=False)
    for line in UNCLEAR:
        more = f"\r\n{line}\r\n\r\n".encode("latin-1")
        answer = await exchanged(peer, posted(peer, PING).replace(b"\r\n\r\n", more, 1))
        assert answer.status == 400, line
        await works(peer)


PATHS: dict[str, int] = {
    "/mcp": 200,
    "/mcp?x=1": 200,
    "/mcp?": 200,
    "/mcp/": 200,
    "//mcp": 404,
    "/MCP": 404,
    "/mcp/servers": 404,
    "/mcp/servers/": 404,
    "/mcp/servers/fs/": 404,
    "/mcp/servers/fs%2F": 404,
    "/mcp/servers/fs%2Fx": 404,
    "/mcp/servers/..": 404,
    "/mcp/servers/fs/../..": 404,
    "/mcp/servers/%": 404,
}


async def test_an_address_is_that_of_the_gateway_or_not_found(site: Site):
    peer = await site.peer(modern=False)
    for path, status in PATHS.items():
        answer = await exchanged(peer, posted(peer, PING, path=path))
        assert answer.status == status, path


async def test_another_verb_is_told_which_there_are(site: Site):
    peer = await site.peer(modern=False)
    for verb in ("HEAD", "PUT", "PATCH", "TRACE"):
        for path in ROUTES.values():
            line = await line_of(peer)
            line.writer.write(head_of(verb, path, [*fields_of(peer), ("Connection", "close")]))
            head = (await line.reader.read()).split(b"\r\n\r\n")[0].lower()
            assert head.startswith(b"http/1.1 405")
            assert b"\r\nallow: " in head


async def test_an_older_http_is_answered_once_and_closed(site: Site):
    peer = await site.peer(modern=False)
    body = [("Content-Type", "application/json"), ("Content-Length", str(len(PING)))]
    line = await line_of(peer)
    line.writer.write(head_of("POST", "/mcp", [*fields_of(peer), *body], "HTTP/1.0") + PING)
    assert (await line.answer()).json["result"] == {}
    assert await line.reader.read() == b""


# --- ids of others


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_session_is_of_no_use_to_anybody_else_and_stays_what_it_is(site: Site, verb: str):
    minted = await site.tokens.mint("gate", "client", task_id="open", acts_for_users=True)
    alice = await site.joined(Peer(site, minted.token, headers={"X-Bascule-User": "alice"}))
    own = alice.session
    bob = Peer(site, minted.token, headers={"X-Bascule-User": "bob"}, session=own)
    stranger = Peer(site, (await site.tokens.mint("s", "client", task_id="open")).token)
    stranger.session = own
    elsewhere = Peer(site, minted.token, "/mcp/servers/fs", alice.headers, own)
    tampered = Peer(site, minted.token, headers=alice.headers, session=own[:-2] + "AA")
    body = json.loads(PING) if verb == "POST" else None
    answers: list[Json] = []
    for peer in (bob, stranger, elsewhere, tampered):
        answer = await peer.send(verb, body)
        assert answer.status == 404
        answers.append(await answer.body())
    assert answers.count(answers[0]) == 4
    await works(alice)


async def test_a_session_ends_with_its_token_and_is_not_that_of_the_next(site: Site):
    first = await site.tokens.mint("alice", "client", task_id="writer")
    peer = await site.joined(Peer(site, first.token))
    await site.tokens.revoke(first.record.id)
    answer = await peer.send("POST", json.loads(PING))
    assert answer.status == 401
    again = await site.tokens.mint("alice", "client", task_id="writer")
    answer = await Peer(site, again.token, session=peer.session).send("POST", json.loads(PING))
    assert (answer.status, (await answer.body())["error"]["code"]) == (404, -32001)


@GENERATIONS
async def test_a_cursor_that_was_never_given_is_refused(site: Site, modern: bool):
    peer = await site.peer(modern=modern)
    for cursor in ("", "x", "AAAAAQ==", "é", 0, [], {}, True, 10**300):
        answer = await peer.request("tools/list", cursor=cursor)
        assert (await answer.body())["error"]["code"] == -32602, cursor
    await works(peer)


# --- anything in every field

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
META_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "progressToken": JSON | st.integers(0, 9) | st.text(max_size=300),
        "bascule/approval_wait_ms": JSON | st.integers(-1, 5),
        "traceparent": JSON | st.just("00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
        "tracestate": JSON,
        META + "logLevel": JSON | st.sampled_from(LOG_LEVELS),
        META + "clientInfo": JSON,
        META + "clientCapabilities": JSON | st.just({}),
        META + "protocolVersion": JSON | st.sampled_from([MODERN, *LEGACY]),
    },
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "_meta": JSON | META_FIELDS,
        "name": JSON | st.sampled_from([READ, "read", "bascule__read_output", "mcp__git__log"]),
        "arguments": JSON | st.dictionaries(st.sampled_from(["text", "count", "handle"]), JSON),
        "cursor": JSON,
        "level": JSON | st.sampled_from(LOG_LEVELS),
        "protocolVersion": JSON | st.sampled_from([MODERN, *LEGACY]),
        "capabilities": JSON | st.dictionaries(st.text(max_size=300), JSON, max_size=9),
        "clientInfo": JSON | st.fixed_dictionaries({"name": JSON, "version": JSON}),
        "requestId": JSON,
        "notifications": JSON | st.dictionaries(st.just("toolsListChanged"), JSON),
        "inputResponses": JSON,
        "requestState": JSON,
        "uri": JSON,
        "task": JSON,
    },
)
METHODS = (
    *("initialize", "ping", "tools/list", "tools/call", "logging/setLevel", "server/discover"),
    *("subscriptions/listen", "resources/read", "prompts/get", "tasks/get", "completion/complete"),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "", "x"),
)


@contextmanager
def running() -> Generator[tuple[asyncio.Runner, Site]]:
    """Serve a site for as long as a test that has no loop of its own needs it."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        site = runner.run(stack.enter_async_context(serving(Site())))
        try:
            yield runner, site
        finally:
            runner.run(stack.aclose())


async def survives(peer: Peer, message: Json) -> None:
    """Send a message; the answer is coded, is valid and is this message's own, and all goes on."""
    headers = modern_fields(message) if peer.modern else {}
    stream = await peer.send("POST", message, also=headers)
    assert stream.status < NOT_CODED
    if message["method"] == "subscriptions/listen" and stream.status == 200 and peer.modern:
        done(peer, stream)
        return
    answer = await last_of(stream)
    done(peer, stream)
    if "id" not in message or stream.status == 202:
        assert ("id" in message, "result" in answer) == (False, False)
        return
    version = MODERN if stream_is_modern(peer, message) else LEGACY[0]
    check(answer, version, sender="server", answers=message["method"])
    assert answer.get("id", message["id"]) == message["id"]
    assert ("result" in answer) != ("error" in answer)


def stream_is_modern(peer: Peer, message: Json) -> bool:
    """Say in which generation a message is answered: by its own word, as well."""
    meta = message["params"].get("_meta")
    return peer.modern or (isinstance(meta, dict) and META + "protocolVersion" in meta)


@GENERATIONS
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_anything_in_any_field_of_any_method_has_a_coded_answer(modern: bool, route: str):
    with running() as (runner, site):
        peer = runner.run(site.peer(modern=modern, route=route))

        @settings(max_examples=scaled(2000), deadline=None, suppress_health_check=SLOW)
        @given(st.sampled_from(METHODS), PARAMS, st.integers() | st.text(max_size=256))
        def attacked(method: str, params: Json, id: int | str) -> None:
            message: Json = {"jsonrpc": "2.0", "method": method, "params": params}
            if not method.startswith("notifications/"):
                message["id"] = id
            if modern and isinstance(params.get("_meta", {}), dict):
                message["params"] = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
            runner.run(survives(peer, message))
            runner.run(works(peer))

        attacked()
        assert (len(site.gateway.calls), len(site.sessions)) == (0, 1)
