"""The proof of the proof: what is not valid in a version is refused, and named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doors.gateway.schemas import VERSIONS, Dialogue, check, check_as

LEGACY, MODERN = VERSIONS[:-1], VERSIONS[-1]
TEXT = {"type": "text", "text": "hello"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


def answer(**result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def call_result(version: str, **members: Any) -> dict[str, Any]:
    modern = {"resultType": "complete"} if version == MODERN else {}
    return answer(**{"content": [TEXT]} | modern | members)


def refused(message: dict[str, Any], version: str, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        check(message, version, **options)
    return str(caught.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ordinary_result_is_valid_in_its_version(version: str) -> None:
    result = call_result(version, vendor={"any": "thing"}, isError=False)
    check(result, version, sender="server", answers="tools/call")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "members",
    [
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": [{"type": "hologram", "text": "x"}]},
        {"content": [{"type": "image", "data": "%%", "mimeType": "image/png"}]},
        {"content": [{"type": "resource", "resource": {"uri": "here", "text": "x"}}]},
        {"content": [TEXT | {"annotations": {"priority": 2}}]},
        {"content": "hello"},
        {"isError": "no"},
        {"_meta": []},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_is_refused(version: str, members: dict[str, Any]) -> None:
    result = call_result(version, **members)
    assert "no valid" in refused(result, version, sender="server", answers="tools/call")


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("field", ["resultType", "ttlMs", "cacheScope", "requestState"])
def test_a_legacy_result_has_no_field_of_the_modern_generation(version: str, field: str) -> None:
    result = call_result(version, **{field: "complete"})
    assert field in refused(result, version, sender="server", answers="tools/call")


@pytest.mark.parametrize(
    ("block", "since"), [(AUDIO, "2025-03-26"), (LINK, "2025-06-18")], ids=["audio", "link"]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_block_is_valid_from_its_version_on(
    block: dict[str, Any], since: str, version: str
) -> None:
    result = call_result(version, content=[block])
    if version >= since:
        check(result, version, sender="server", answers="tools/call")
    else:
        assert "content/0" in refused(result, version, sender="server", answers="tools/call")


@pytest.mark.parametrize(
    ("field", "value", "first", "last"),
    [
        ("annotations", {"readOnlyHint": True}, "2025-03-26", MODERN),
        ("title", "A tool", "2025-06-18", MODERN),
        ("_meta", {"a": 1}, "2025-06-18", MODERN),
        ("outputSchema", {"type": "object"}, "2025-06-18", MODERN),
        ("outputSchema", {"type": "array"}, MODERN, MODERN),
        ("icons", [{"src": "https://example.com/a.png"}], "2025-11-25", MODERN),
        ("execution", {"taskSupport": "optional"}, "2025-11-25", "2025-11-25"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_tool_has_a_field_only_in_versions_that_know_it(
    field: str, value: object, first: str, last: str, version: str
) -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}, field: value}
    if first <= version <= last:
        check_as("Tool", tool, version)
    else:
        with pytest.raises(AssertionError):
            check_as("Tool", tool, version)


def test_a_modern_result_without_its_type_or_its_hints_is_refused() -> None:
    assert "resultType" in refused(
        answer(content=[TEXT]), MODERN, sender="server", answers="tools/call"
    )
    listed = answer(resultType="complete", tools=[])
    assert "required" in refused(listed, MODERN, sender="server", answers="tools/list")
    listed["result"] |= {"ttlMs": 0, "cacheScope": "private"}
    check(listed, MODERN, sender="server", answers="tools/list")


def test_requests_are_checked_by_their_sender_and_version() -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for version in LEGACY:
        check(ping, version, sender="client")
        check(ping, version, sender="server")
    assert "has no ping" in refused(ping, MODERN, sender="client")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    check(call, "2025-11-25", sender="client")
    assert "has no tools/call" in refused(call, "2025-11-25", sender="server")
    assert "_meta" in refused(call, MODERN, sender="client")
    nameless = call | {"params": {"arguments": {}}}
    assert "name" in refused(nameless, "2024-11-05", sender="client")


def test_notifications_are_checked_by_their_sender_and_version() -> None:
    params = {"progressToken": 1, "progress": 0.5, "message": "half"}
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    for version in VERSIONS[1:]:
        check(progress, version, sender="server")
    assert "message" in refused(progress, "2024-11-05", sender="server")
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    for version in VERSIONS:
        check(changed, version, sender="server")
    assert "has no" in refused(changed, MODERN, sender="client")


def test_errors_are_checked_by_their_code() -> None:
    error = {"code": -32022, "message": "no such version"}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "error": error}
    assert "data" in refused(message, MODERN, sender="server")
    error |= {"data": {"supported": [MODERN], "requested": "2031-01-01"}}
    check(message, MODERN, sender="server")
    for version in VERSIONS:
        check({"jsonrpc": "2.0", "error": {"code": 1, "message": "x"}}, version, sender="server")
    assert "id" in refused(message | {"id": None}, "2025-06-18", sender="server")


def test_a_dialogue_goes_on_in_the_version_that_was_agreed_on() -> None:
    dialogue = Dialogue("2025-11-25")
    opening: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    dialogue.client({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening})
    told = {
        "protocolVersion": "2025-03-26",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    dialogue.server({"jsonrpc": "2.0", "id": 0, "result": told})
    assert dialogue.version == "2025-03-26"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    dialogue.client(call)
    with pytest.raises(AssertionError, match="content/0"):
        dialogue.server(answer(content=[LINK]))
    with pytest.raises(AssertionError, match="nobody asked"):
        dialogue.server(answer(content=[TEXT]) | {"id": 7})
