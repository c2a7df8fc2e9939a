"""A cut result keeps its tool's promise where its caller checks that, or says that it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bascule.model.call import Beside
from bascule.model.outcome import Outcome
from bascule.policy.output import weight
from tests.node.fakes import World, cut, definition, failed, succeeded, text
from tests.policy.build import server

pytestmark = pytest.mark.requirement("outcomes:cut:output-schema")
CHECKS = Beside(keeps_schema=True)
SECRET = "hunter2-but-longer"
ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"type": "string"}},
        "total": {"type": "integer"},
    },
    "required": ["rows", "total"],
    "additionalProperties": False,
}
ANSWER: dict[str, Any] = {"rows": [f"row {n} é" for n in range(9000)], "total": 9000}
RESULT: dict[str, Any] = {"type": "object", "properties": {"result": {"type": "string"}}}
CAP = 4096


def world(schema: Any = ROWS, cap: int = CAP, **hygiene: Any) -> World:
    made = World(server("fs", budgets={"max_tool_output_bytes": cap}, hygiene=hygiene))
    made.caller.offers(made.records[0], definition("read", outputSchema=schema))
    return made


async def answer(made: World, result: Any, beside: Beside = CHECKS) -> Outcome:
    made.caller.answers("read", result)
    return await made.session().call_beside("mcp__fs__read", {}, beside)


def spelled(value: Any = ANSWER, **more: Any) -> dict[str, Any]:
    return text(json.dumps(value), structuredContent=value, **more)


@pytest.mark.parametrize("mode", ["warn", "refuse", "off"])
@pytest.mark.parametrize("cap", [200, CAP, 65536])
@pytest.mark.parametrize(
    "result",
    [spelled(), text(structuredContent=ANSWER), text("Here they are.", structuredContent=ANSWER)],
    ids=["spelled out", "alone", "beside a text"],
)
async def test_structured_content_that_is_cut_fits_its_schema_and_the_cap(
    result: Any, cap: int, mode: str
):
    outcome = cut(await answer(world(cap=cap, output_schema=mode), result))
    Draft202012Validator(ROWS).validate(outcome.structured)
    assert outcome.structured["total"] == 9000
    rows = outcome.structured["rows"]
    assert rows == ANSWER["rows"][: len(rows)]
    assert cap // 5 < weight(outcome.content, outcome.structured) <= cap
    assert outcome.truncated is not None
    shown, total = outcome.truncated.shown, outcome.truncated.total
    assert outcome.content[-1]["text"] == f"[truncated: {shown} of {total} bytes shown]"
    assert shown <= cap < total


async def test_a_text_that_was_the_json_of_it_still_is():
    outcome = cut(await answer(world(), spelled()))
    first, note = outcome.content
    assert json.loads(first["text"]) == outcome.structured
    assert note["text"].startswith("[truncated: ")
    assert len(outcome.structured["rows"]) > 100


async def test_a_copy_of_a_text_that_is_cut_fits_as_it_is():
    said = "a line\n" * 9000
    outcome = cut(await answer(world(RESULT), text(said, structuredContent={"result": said})))
    assert outcome.structured == {"result": outcome.text}
    assert outcome.text.endswith("bytes shown]")


async def test_all_of_it_stays_behind_the_handle():
    made = world()
    made.caller.answers("read", spelled())
    session = made.session()
    outcome = cut(await session.call_beside("mcp__fs__read", {}, CHECKS))
    assert outcome.truncated is not None
    assert outcome.truncated.handle is not None
    assert json.loads(session.read_output(outcome.truncated.handle)) == ANSWER


@pytest.mark.parametrize(
    "schema",
    [
        {**ROWS, "properties": {**ROWS["properties"], "rows": {"type": "array", "minItems": 5000}}},
        {"type": "object", "$ref": "https://example.org/s.json"},
        {"type": "object", "properties": {"rows": {"items": {"pattern": "^(?!no)"}}}},
    ],
    ids=["needs its items", "unusable", "not enforced"],
)
async def test_where_that_cannot_be_done_the_call_fails_with_the_cut_text(schema: Any):
    made = world(schema)
    outcome = failed(await answer(made, spelled()), "mcp_output_too_large")
    assert outcome.structured is None
    assert outcome.text.startswith('{"rows": ["row 0')
    assert outcome.text.endswith("bytes shown]")
    assert outcome.truncated is not None
    assert outcome.truncated.handle is not None
    assert "output schema" in outcome.error.message
    assert not outcome.error.retryable
    assert made.ledger.last.code == "mcp_output_too_large"


async def test_whoever_does_not_check_gets_the_cut_form_as_ever():
    outcome = cut(await answer(world(), spelled(), Beside()))
    assert outcome.structured.keys() == {"truncated", "json"}


async def test_what_is_not_cut_is_not_touched():
    small = {"rows": ["a"], "total": 1}
    outcome = succeeded(await answer(world(), spelled(small)))
    assert (outcome.structured, outcome.truncated) == (small, None)
    wrong = succeeded(await answer(world(), text("x", structuredContent={"total": "x"})))
    assert wrong.structured == {"total": "x"}


async def test_what_a_tool_calls_an_error_and_what_it_promises_nothing_of_is_cut_as_ever():
    outcome = failed(await answer(world(), spelled(isError=True)), "mcp_tool_error")
    assert outcome.truncated is not None
    assert cut(await answer(world(None), spelled())).structured.keys() == {"truncated", "json"}
    assert cut(await answer(world(), text("x" * 9000))).structured is None


@pytest.mark.requirement("hygiene:leaks:results")
@pytest.mark.parametrize("at", [0, 3000, 3900, 3990, 4060, 4090, 5000, 90_000])
async def test_no_credential_is_cut_in_half(at: int):
    made = world(RESULT)
    made.caller.hide(SECRET)
    value = {"result": "a" * at + SECRET + "b" * 100_000, "other": "c" * 9000}
    outcome = cut(await answer(made, text("Done.", structuredContent=value)))
    Draft202012Validator(RESULT).validate(outcome.structured)
    assert SECRET[:4] not in repr(outcome)


@pytest.mark.parametrize("cap", [CAP, 65536])
async def test_pictures_and_links_stay_beside_it_and_are_cleaned(cap: int):
    link = {"type": "resource_link", "uri": f"file:///{SECRET}", "name": "a\x1b"}
    picture = {"type": "image", "data": "iVBORw0K" * 1000, "mimeType": "image/png"}
    made, result = world(cap=cap), spelled()
    made.caller.hide(SECRET)
    result["content"] += [link, picture]
    outcome = cut(await answer(made, result))
    copy, shown, seen, note = outcome.content
    assert json.loads(copy["text"]) == outcome.structured
    assert shown == {**link, "uri": "file:///[masked:known-value]", "name": "a\\x1b"}
    assert seen == picture
    assert note["text"].startswith("[truncated: ")


@pytest.mark.parametrize("place", ["link", "row"])
async def test_a_credential_that_may_not_pass_withholds_what_would_be_shown(place: str):
    made = world(leaks="block")
    made.caller.hide(SECRET)
    rows = [SECRET if place == "row" and n == 500 else one for n, one in enumerate(ANSWER["rows"])]
    result = spelled({"rows": rows, "total": 1})
    if place == "link":
        result["content"].append({"type": "resource_link", "uri": SECRET, "name": "a"})
    outcome = failed(await answer(made, result), "mcp_policy_denied")
    assert SECRET[:4] not in repr(outcome)
