"""Results are checked against what their tool promises, in one way for all doors."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.outcome import Outcome
from bascule.wire.faults import tool_message
from tests.node.fakes import World, cut, definition, failed, succeeded, text
from tests.policy.build import server

SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
}
RIGHT = text("3", structuredContent={"total": 3})
WRONG = text("three", structuredContent={"total": "three"})
WARNING = "the result does not fit the tool's output schema: result.total: "


def world(mode: str | None = None, schema: Any = SCHEMA, **budgets: Any) -> World:
    hygiene = {} if mode is None else {"output_schema": mode}
    made = World(server("fs", hygiene=hygiene, budgets=budgets))
    made.caller.offers(made.records[0], definition("read", outputSchema=schema))
    return made


async def answer(made: World, result: dict[str, Any]) -> Outcome:
    made.caller.answers("read", result)
    return await made.session().call("mcp__fs__read")


def figures(made: World) -> str:
    return made.core.metrics.render().decode()


@pytest.mark.requirement("hygiene:output-schema")
@pytest.mark.parametrize("mode", [None, "warn", "refuse", "off"])
async def test_a_result_that_fits_passes_without_a_word(mode: str | None):
    outcome = succeeded(await answer(world(mode), RIGHT))
    assert (outcome.structured, outcome.warnings) == ({"total": 3}, ())


@pytest.mark.requirement("hygiene:output-schema")
@pytest.mark.parametrize("mode", [None, "warn"])
async def test_by_default_a_result_that_does_not_fit_is_given_with_a_warning(mode: str | None):
    made = world(mode)
    outcome = succeeded(await answer(made, WRONG))
    assert outcome.structured == {"total": "three"}
    [warning] = outcome.warnings
    assert warning.startswith(WARNING)
    assert "three" not in warning
    assert 'mcp_tool_output_invalid_total{server_id="fs",tool="read"} 1.0' in figures(made)
    assert "mcp_tool_call_error_total{" not in figures(made)


@pytest.mark.requirement("hygiene:output-schema")
async def test_under_refuse_it_is_a_failure_of_the_tool_which_did_run():
    made = world("refuse")
    outcome = failed(await answer(made, WRONG), "mcp_tool_error")
    assert outcome.error.message.startswith(f"the tool ran, but {WARNING}")
    assert outcome.error.details is not None
    assert outcome.error.details["reason"] == "output_schema"
    assert not outcome.error.retryable
    assert len(made.sent) == 1
    assert "three" not in tool_message(outcome)
    assert 'mcp_tool_output_invalid_total{server_id="fs",tool="read"} 1.0' in figures(made)


@pytest.mark.requirement("hygiene:output-schema")
async def test_under_off_nothing_is_looked_at():
    made = world("off")
    assert succeeded(await answer(made, WRONG)).warnings == ()
    assert "mcp_tool_output_invalid_total{" not in figures(made)


@pytest.mark.requirement("hygiene:output-schema")
async def test_a_promised_result_that_is_missing_does_not_fit():
    [warning] = succeeded(await answer(world(), text("plain"))).warnings
    assert warning.endswith("there is no structured content")
    failed(await answer(world("refuse"), text("plain")), "mcp_tool_error")


@pytest.mark.requirement("hygiene:output-schema")
async def test_what_was_cut_and_what_is_an_error_are_not_judged():
    long = text("x", structuredContent={"total": "x" * 500})
    assert cut(await answer(world("refuse", max_tool_output_bytes=200), long)).warnings == ()
    said = failed(await answer(world("refuse"), text("no", isError=True)), "mcp_tool_error")
    assert (said.error.message, said.warnings) == ("no", ())


@pytest.mark.requirement("hygiene:output-schema")
@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1, 2], ["one"]),
        ({"type": "string"}, "text", 7),
        ({"anyOf": [{"type": "object"}, {"type": "integer"}]}, 7, "seven"),
    ],
)
async def test_a_result_need_not_be_an_object(schema: Any, right: Any, wrong: Any):
    made = world("refuse", schema)
    outcome = succeeded(await answer(made, text("x", structuredContent=right)))
    assert (outcome.structured, outcome.warnings) == (right, ())
    failed(await answer(made, text("x", structuredContent=wrong)), "mcp_tool_error")


async def test_masking_does_not_make_a_result_unfit():
    secret = "hunter2-but-longer"
    made = world("refuse", {"type": "object", "properties": {"k": {"pattern": "^h.*r$"}}})
    made.caller.hide(secret)
    outcome = succeeded(await answer(made, text("ok", structuredContent={"k": secret})))
    assert outcome.structured == {"k": "[masked:known-value]"}


@pytest.mark.parametrize("mode", ["warn", "refuse"])
async def test_a_schema_that_refers_outside_is_not_fetched_and_said_to_be_unusable(mode: str):
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.org/s.json"}}}
    [warning] = succeeded(await answer(world(mode, schema), RIGHT)).warnings
    assert "output schema cannot be used" in warning


async def test_a_schema_is_compiled_once_for_all_sessions():
    made = world()
    await answer(made, RIGHT)
    kept = dict(made.core.validators)
    await answer(made, RIGHT)
    assert len(kept) == 2
    assert made.core.validators == kept
