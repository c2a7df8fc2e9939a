"""Both generations at one address: which one a request speaks, and what it is told."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bascule.doors.gateway.generation import MAX_CAPABILITIES, capability_names
from bascule.wire.era import LEGACY, META, MODERN
from tests.doors.gateway.schemas import check
from tests.doors.gateway.stream_site import Peer, Site, serving
from tests.node.fakes import TEXT_SCHEMA, definition
from tests.policy.build import server

Json = dict[str, Any]
VERSION, CAPABILITIES = META + "protocolVersion", META + "clientCapabilities"
READ = "mcp__fs__read"
ENVELOPE: Json = {VERSION: MODERN, CAPABILITIES: {}}
HEADED: Json = {
    **TEXT_SCHEMA,
    "properties": {
        "text": {"type": "string", "x-mcp-header": "Text"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
    },
}


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with serving(Site()) as found:
        yield found


async def modern(
    peer: Peer, method: str, params: Json | None = None, **headers: str | None
) -> tuple[int, Json]:
    """Send a modern request as it must be, but for what a test changes."""
    said = {"_meta": ENVELOPE} if params is None else params
    also: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if isinstance(said.get("name"), str):
        also["Mcp-Name"] = str(said["name"])
    for name, value in headers.items():
        also[name.replace("_", "-")] = value
    body = {"jsonrpc": "2.0", "id": 9, "method": method, "params": said}
    sent = {name: value for name, value in also.items() if value is not None}
    answer = await peer.send("POST", body, also=sent)
    message = await answer.body()
    check(message, MODERN, sender="server", answers=method)
    return answer.status, message


def call(name: str = READ, **arguments: Any) -> Json:
    return {"name": name, "arguments": arguments, "_meta": ENVELOPE}


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.requirement("gateway:sessions")
async def test_a_session_has_the_version_its_client_wants(site: Site, version: str):
    token = (await site.tokens.mint("alice", "client", task_id="writer")).token
    peer = Peer(site, token, version=version)
    answer = await peer.request(
        "initialize",
        protocolVersion=version,
        capabilities={},
        clientInfo={"name": "t", "version": "1"},
    )
    message = await answer.body()
    check(message, version, sender="server", answers="initialize")
    assert message["result"]["protocolVersion"] == version
    peer.session = answer.headers["mcp-session-id"]
    for method in ("tools/list", "ping"):
        found = await (await peer.request(method)).body()
        check(found, version, sender="server", answers=method)
    called = await peer.call("mcp__fs__read")
    check(called, version, sender="server", answers="tools/call")
    assert called["result"] == {"content": [{"type": "text", "text": "done"}]}


async def test_a_version_that_nobody_knows_gets_the_newest_of_its_generation(site: Site):
    token = (await site.tokens.mint("alice", "client", task_id="writer")).token
    for wanted in ("1999-01-01", MODERN, 5, None):
        answer = await Peer(site, token).request("initialize", protocolVersion=wanted)
        assert (await answer.body())["result"]["protocolVersion"] == LEGACY[0]


@pytest.mark.requirement("gateway:stateless")
async def test_discovery_says_what_there_is(site: Site):
    status, message = await modern(await site.peer(modern=True), "server/discover")
    result = message["result"]
    assert (status, result["supportedVersions"]) == (200, [MODERN])
    assert result["resultType"] == "complete"
    assert result["cacheScope"] == "private"
    assert set(result["capabilities"]) == {"tools", "logging"}


@pytest.mark.requirement("gateway:stateless")
async def test_a_modern_list_says_how_long_it_is_good_for_and_for_whom(site: Site):
    _, message = await modern(await site.peer(modern=True), "tools/list")
    result = message["result"]
    assert (result["cacheScope"], result["resultType"]) == ("private", "complete")
    assert result["ttlMs"] > 0


REFUSED: dict[str, tuple[Json, int]] = {
    "no _meta": ({}, -32602),
    "an empty _meta": ({"_meta": {}}, -32602),
    "a _meta that is no object": ({"_meta": [1]}, -32602),
    "no version": ({"_meta": {CAPABILITIES: {}}}, -32602),
    "no capabilities": ({"_meta": {VERSION: MODERN}}, -32602),
    "capabilities that are no object": ({"_meta": {**ENVELOPE, CAPABILITIES: []}}, -32602),
    "another version than in the header": ({"_meta": {**ENVELOPE, VERSION: "x"}}, -32020),
    "a version that is no text": ({"_meta": {**ENVELOPE, VERSION: 5}}, -32020),
}


@pytest.mark.parametrize(("params", "code"), REFUSED.values(), ids=REFUSED)
@pytest.mark.requirement("gateway:stateless")
async def test_a_modern_request_must_say_what_it_is(site: Site, params: Json, code: int):
    status, message = await modern(await site.peer(modern=True), "tools/list", params)
    assert (status, message["error"]["code"]) == (400, code)


@pytest.mark.requirement("gateway:stateless")
async def test_a_version_that_is_not_served_is_told_which_are(site: Site):
    future = {"_meta": {**ENVELOPE, VERSION: "2099-01-01"}}
    status, message = await modern(
        await site.peer(modern=True), "tools/list", future, MCP_Protocol_Version="2099-01-01"
    )
    assert (status, message["error"]["code"]) == (400, -32022)
    assert message["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


def base64ed(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


HEADERS: dict[str, Json] = {
    "no version": {"MCP_Protocol_Version": None},
    "another version": {"MCP_Protocol_Version": "2025-11-25"},
    "no method": {"Mcp_Method": None},
    "another method": {"Mcp_Method": "tools/list"},
    "the method in capitals": {"Mcp_Method": "TOOLS/CALL"},
    "no name": {"Mcp_Name": None},
    "another name": {"Mcp_Name": "mcp__fs__write"},
    "the name in capitals": {"Mcp_Name": "MCP__FS__READ"},
    "another name in base64": {"Mcp_Name": base64ed("mcp__fs__write")},
    "base64 that is none": {"Mcp_Name": "=?base64?mcp__fs__read?="},
    "base64 with bits to spare": {"Mcp_Name": "=?base64?bWNwX19mc19fcmVhZB==?="},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
@pytest.mark.requirement("gateway:headers")
async def test_headers_must_say_what_the_body_says(site: Site, headers: Json):
    status, message = await modern(
        await site.peer(modern=True), "tools/call", call(text="x"), **headers
    )
    assert (status, message["error"]["code"]) == (400, -32020)
    assert site.world.caller.sent == []


@pytest.mark.parametrize(
    "header", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Text"]
)
async def test_a_header_that_repeats_the_body_may_not_come_twice(site: Site, header: str):
    peer = await site.peer(modern=True)
    said = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": READ}
    twice = said.get(header, "x")
    status, message = await modern(
        peer, "tools/call", call(text="x"), **{header: f"{twice}\r\n{header}: {twice}"}
    )
    assert (status, message["error"]["code"]) == (400, -32020)
    assert message["error"]["message"] == f"{header.lower()}: is given more than once"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (None, ()),
        ([], ()),
        ({"roots": 1, "elicitation": {"form": {}, "url": {}}},
         ("roots", "elicitation", "elicitation.form", "elicitation.url")),
        ({"a" * (MAX_CAPABILITIES - 1): {}, "b": {}}, ("a" * (MAX_CAPABILITIES - 1),)),
        ({"a" * MAX_CAPABILITIES: {}, "b": {}}, ()),
    ],
)  # fmt: skip
def test_of_what_a_client_can_do_the_names_are_kept_that_there_is_room_for(
    said: Any, names: tuple[str, ...]
):
    assert capability_names(said) == names


async def test_a_name_may_come_in_base64(site: Site):
    name = base64ed("mcp__fs__read")
    status, message = await modern(
        await site.peer(modern=True), "tools/call", call(), Mcp_Name=name
    )
    assert (status, message["result"]["resultType"]) == (200, "complete")


PARAMETERS: dict[str, tuple[Json, Json, bool]] = {
    "both absent": ({}, {}, True),
    "equal": ({"text": "x"}, {"Mcp_Param_Text": "x"}, True),
    "equal in base64": ({"text": "é"}, {"Mcp_Param_Text": base64ed("é")}, True),
    "equal numbers": ({"count": 42}, {"Mcp_Param_Count": "42.0"}, True),
    "not there": ({"text": "x"}, {}, False),
    "there for nothing": ({}, {"Mcp_Param_Text": "x"}, False),
    "there for null": ({"text": None}, {"Mcp_Param_Text": "x"}, False),
    "another text": ({"text": "x"}, {"Mcp_Param_Text": "X"}, False),
    "a text like a number": ({"text": "42"}, {"Mcp_Param_Text": "42.0"}, False),
    "another number": ({"count": 42}, {"Mcp_Param_Count": "43"}, False),
    "a yes for a one": ({"count": 1}, {"Mcp_Param_Count": "true"}, False),
}


@pytest.mark.parametrize(("arguments", "headers", "passes"), PARAMETERS.values(), ids=PARAMETERS)
@pytest.mark.requirement("gateway:headers")
async def test_arguments_that_a_tool_wants_in_headers_are_compared(
    site: Site, arguments: Json, headers: Json, passes: bool
):
    site.world.caller.offers(site.records[0], {**definition("read"), "inputSchema": HEADED})
    peer = await site.peer(modern=True)
    await peer.tools()
    _, message = await modern(peer, "tools/call", call(**arguments), **headers)
    assert message.get("error", {}).get("code") == (None if passes else -32020)
    assert len(site.world.caller.sent) == passes


async def test_arguments_in_headers_are_compared_whether_or_not_the_tool_was_listed(site: Site):
    site.world.caller.offers(site.records[0], {**definition("read"), "inputSchema": HEADED})
    peer = await site.peer(modern=True)
    for _ in range(2):  # before anything is known of the server, and after
        _, message = await modern(peer, "tools/call", call(text="x"), Mcp_Param_Text="y")
        assert message["error"]["code"] == -32020
    site.world.caller.offers(site.records[0], {**definition("read"), "inputSchema": HEADED})
    _, message = await modern(peer, "tools/call", call(text="x"))
    assert message["error"]["code"] == -32020
    assert site.world.caller.sent == []


async def test_a_server_that_never_lists_is_waited_for_once(site: Site):
    site.apply(server("fs", budgets={"tool_timeout_ms": 100}))
    listing = site.world.caller.hold_listing("fs")
    _, message = await modern(await site.peer(modern=True), "tools/call", call())
    assert message["result"]["_meta"]["bascule/error"]["code"] == "mcp_timeout"
    assert site.world.caller.asked == 1
    assert [one.code for one in site.world.ledger.calls()] == ["mcp_timeout"]
    listing.set()


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/list", "prompts/list", "tools/nothing"],
)
async def test_what_the_modern_generation_has_not_is_not_found(site: Site, method: str):
    status, message = await modern(await site.peer(modern=True), method)
    assert (status, message["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("method", ["server/discover", "resources/list", "subscriptions/listen"])
async def test_what_the_legacy_generation_has_not_is_an_error_in_its_session(
    site: Site, method: str
):
    answer = await (await site.peer(modern=False)).request(method)
    message = await answer.body()
    check(message, LEGACY[0], sender="server", answers=method)
    assert (answer.status, message["error"]["code"]) == (200, -32601)


async def test_a_notification_is_accepted_and_not_answered(site: Site):
    for peer in (await site.peer(modern=False), await site.peer(modern=True)):
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        also = {"MCP-Protocol-Version": MODERN} if peer.modern else {}
        answer = await peer.send("POST", note, also=also)
        assert (answer.status, answer.headers["content-length"]) == (202, "0")


async def test_a_legacy_request_needs_a_session_and_is_told_how_to_get_one(site: Site):
    peer = await site.peer(modern=False)
    peer.session = ""
    answer = await peer.request("tools/list")
    message = await answer.body()
    assert (answer.status, message["error"]["code"]) == (400, -32600)
    assert "initialize" in message["error"]["message"]


@pytest.mark.requirement("gateway:sessions")
async def test_the_older_transport_of_two_endpoints_is_not_served_and_says_so(site: Site):
    peer = await site.peer(modern=False)
    peer.session = ""
    answer = await peer.send("GET", None)
    assert answer.status == 405
    assert "HTTP+SSE" in (await answer.body())["error"]["message"]


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.requirement("gateway:session-ids")
async def test_sessions_that_cannot_be_opened_are_one_and_the_same(site: Site, verb: str):
    alice, bob = await site.peer(modern=False), await site.peer("reader", modern=False)
    gone = await site.peer(modern=False)
    assert (await gone.send("DELETE", None)).status == 204
    words: set[str] = set()
    for peer, session in [(alice, bob.session), (alice, "x"), (gone, gone.session)]:
        peer.session = session
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"} if verb == "POST" else None
        answer = await peer.send(verb, body)
        message = await answer.body()
        message.pop("id", None)
        words.add(json.dumps(message))
        assert answer.status == 404
    assert len(words) == 1


async def test_a_session_of_one_route_is_unknown_at_another(site: Site):
    peer = await site.peer(modern=False)
    peer.route = "/mcp/servers/fs"
    assert (await peer.request("ping")).status == 404


@pytest.mark.requirement("gateway:routes")
@pytest.mark.parametrize("route", ["/mcp", "/mcp/servers/fs"])
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_a_slash_at_the_end_of_an_address_is_no_matter(
    site: Site, *, route: str, modern: bool
):
    peer = await site.peer(modern=modern, route=route)
    names = await peer.tools()
    peer.route = f"{route}/"
    assert names
    assert await peer.tools() == names


async def test_a_header_with_an_unknown_version_is_refused_in_a_session(site: Site):
    peer = await site.peer(modern=False)
    peer.headers = {"MCP-Protocol-Version": "2024-10-07"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
    assert (await peer.send("POST", body)).status == 400
    for verb in ("GET", "DELETE"):
        assert (await peer.send(verb, None)).status == 400
    for known in LEGACY:
        peer.headers = {"MCP-Protocol-Version": known}
        assert (await peer.send("POST", body)).status == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/html", 406),
        ("text/event-stream", 406),
        ("*/*", 200),
        ("Application/JSON", 200),
        ("application/json", 200),
    ],
)
async def test_whoever_takes_no_json_is_told_so(site: Site, accept: str, status: int):
    peer = await site.peer(modern=False)
    peer.headers = {"Accept": accept}
    assert (await peer.request("ping")).status == status
