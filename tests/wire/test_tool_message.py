"""What a model reads of an outcome, and of an error that a server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.errors import (
    RemoteError,
    ServerUnavailable,
)
from bascule.model.outcome import (
    Failed,
    Success,
    Truncation,
    failure,
)
from bascule.wire.faults import error_object, failure_of, tool_message


def success(*texts: str, content: Any = None, structured: Any = None) -> Success:
    blocks = content or [{"type": "text", "text": each} for each in texts]
    return Success(
        text="\n".join(texts),
        content=tuple(blocks),
        structured=structured,
        request_id="r",
        revision=1,
    )


def read(outcome: Success | Failed, **options: bool) -> Any:
    return json.loads(tool_message(outcome, **options))


def test_a_refused_launch_is_known_by_its_reason_too():
    found = failure_of(ServerUnavailable("x", reason="launch_denied"))
    assert (found.code, found.retryable) == ("mcp_unavailable", False)


@pytest.mark.parametrize(
    ("rpc_code", "code"),
    [
        (-32602, "mcp_invalid_arguments"),
        (-32601, "mcp_tool_error"),
        (-32603, "mcp_tool_error"),
        (7, "mcp_tool_error"),
    ],
)
def test_a_remote_error_keeps_its_number_and_its_data_which_no_model_reads(
    rpc_code: int, code: str
):
    found = failure_of(RemoteError(rpc_code, "no", data={"stack": "trace"}))
    assert (found.code, found.message) == (code, "no")
    assert found.details == {"rpc_code": rpc_code, "rpc_data": {"stack": "trace"}}
    told = read(Failed(error=found, request_id="r", revision=1))
    assert told["error"]["details"] == {"rpc_code": rpc_code}


def test_an_error_object_has_the_three_fields_and_only_what_else_is_there():
    assert error_object(failure("mcp_timeout", "late")) == {
        "code": "mcp_timeout",
        "message": "late",
        "retryable": True,
    }
    budget = error_object(failure("mcp_budget_exceeded", "full", retry_after=1.5))
    assert budget["retry_after"] == 1.5


@pytest.mark.requirement("outcomes:message:single-text")
@pytest.mark.parametrize("said", ["plain", '{"not": "touched"}', "", "two\nlines"])
def test_a_single_text_is_given_as_it_is(said: str):
    assert tool_message(success(said)) == said


@pytest.mark.requirement("outcomes:message:json")
def test_several_blocks_are_given_as_json():
    assert read(success("a", "b")) == {
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    }


@pytest.mark.requirement("outcomes:message:json")
def test_a_block_that_is_no_text_is_given_as_json():
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    assert read(success(content=[link])) == {"content": [link]}


@pytest.mark.requirement("outcomes:media:note")
@pytest.mark.parametrize(
    ("block", "note"),
    [
        ({"type": "image", "data": "AAAA" * 9, "mimeType": "image/png"}, "image: image/png, 27"),
        ({"type": "audio", "data": "AAA=", "mimeType": "audio/wav"}, "audio: audio/wav, 2"),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": "AA==", "mimeType": "a/b"}},
            "resource: a/b, 1",
        ),
        ({"type": "resource", "resource": {"blob": "AAAA"}}, "resource: unknown type, 3"),
    ],
)
def test_a_text_model_is_given_a_note_of_media_and_never_the_base64(block: Any, note: str):
    said = f"[{note} bytes]"
    assert tool_message(success(content=[block])) == said
    assert read(success(content=[block]), always_json=True) == {
        "content": [{"type": "text", "text": said}]
    }
    two = [{"type": "text", "text": "look"}, block]
    assert read(success(content=two)) == {"content": [two[0], {"type": "text", "text": said}]}
    data = block.get("data") or block["resource"]["blob"]
    structured = {"result": [{"shot": data}, 1]}
    assert read(success(content=[block], structured=structured)) == {"result": [{"shot": said}, 1]}


@pytest.mark.requirement("outcomes:message:json")
@pytest.mark.parametrize("value", [{"a": [1, "é", None]}, [], 0, False, "text", 2**80])
def test_structured_content_is_given_as_json_and_once(value: Any):
    assert read(success(json.dumps(value), structured=value)) == value


@pytest.mark.requirement("outcomes:message:json", "outcomes:shape")
def test_an_error_is_given_as_json():
    outcome = Failed(error=failure("mcp_timeout", "late"), request_id="r", revision=1)
    assert read(outcome) == {"error": {"code": "mcp_timeout", "message": "late", "retryable": True}}


@pytest.mark.requirement("outcomes:message:json", "outcomes:structured-field")
@pytest.mark.parametrize(
    ("structured", "field"),
    [
        (None, "text"),
        ({"rows": "abc"}, "structured"),
        ({"truncated": {}, "json": "[1"}, "structured"),
        ({"truncated": {}, "json": "abc"}, "text"),
        ({"truncated": {}}, "text"),
    ],
)
def test_a_cut_result_is_given_as_json_with_what_is_left_of_it(structured: Any, field: str):
    outcome = Success(
        request_id="r",
        revision=1,
        text="abc",
        content=({"type": "text", "text": "abc"},),
        structured=structured,
        truncated=Truncation(shown=3, total=9, handle="h"),
    )
    message = read(outcome)
    assert message["error"]["code"] == "mcp_output_too_large"
    assert message["truncated"] == {"shown": 3, "total": 9, "handle": "h"}
    assert message[field] == (structured if field == "structured" else "abc")
    assert set(message) == {"error", "truncated", field}


def test_a_cut_result_of_several_blocks_is_one_text_with_notes_of_its_media():
    outcome = Success(
        request_id="r",
        revision=1,
        text="abc",
        content=(
            {"type": "text", "text": "abc"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        ),
        truncated=Truncation(shown=3, total=9, handle="h"),
    )
    assert read(outcome)["text"] == "abc\n[image: image/png, 3 bytes]"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (success("a"), {"content": [{"type": "text", "text": "a"}]}),
        (success("a", structured={"n": 1}), {"n": 1}),
    ],
)
def test_always_json_gives_json_even_for_a_single_text(outcome: Success, expected: Any):
    assert read(outcome, always_json=True) == expected
