"""What comes back is cleaned: characters, credentials, size; and it keeps its shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.errors import RemoteError
from bascule.model.outcome import Outcome, Truncation
from bascule.wire.faults import tool_message
from tests.node.fakes import World, failed, succeeded, text
from tests.node.fakes import cut as was_cut
from tests.policy.build import server

# Put together here so that no scanner takes this file for a leak.
AWS_KEY = "AKIA" + "Q3ZK7WXN5PLM2RTV"
SECRET = "hunter2-but-longer"
BIDI, TAG = "\u202e", "\U000e0041"


async def result_of(result: dict[str, Any], **fields: Any) -> Outcome:
    """Call a tool that gives this result."""
    world = World(server("fs", **fields))
    world.caller.hide(SECRET)
    world.caller.answers("read", result)
    return await world.session().call("mcp__fs__read")


@pytest.mark.requirement("hygiene:control-characters", "call:hygiene-last")
async def test_terminal_control_is_made_visible_and_counted():
    outcome = succeeded(await result_of(text("\x1b[2J\x1b]0;owned\x07hello")))
    assert not set(outcome.text) & {"\x1b", "\x07"}
    assert "hello" in outcome.text
    assert outcome.warnings == ("characters made harmless: 3 control",)
    assert outcome.content[0]["text"] == outcome.text


@pytest.mark.requirement("hygiene:invisible-characters", "call:hygiene-last")
async def test_hidden_characters_are_removed_and_counted():
    outcome = succeeded(await result_of(text(f"pay{BIDI}ee{TAG}{TAG}")))
    assert outcome.text == "payee"
    assert outcome.warnings == ("characters made harmless: 1 bidi, 2 tag",)


@pytest.mark.requirement("hygiene:invisible-characters", "hygiene:control-characters")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "a", "annotations": {"note": f"x{TAG}\x1b"}},
        {"type": "resource", "resource": {"uri": "a:b", "text": f"x{TAG}\x1b"}},
        {"type": f"x{TAG}\x1b", "text": "a"},
        {f"x{TAG}\x1b": "key", "text": "a"},
        {"type": "novel", "deep": [{"er": [f"x{TAG}\x1b"]}]},
    ],
    ids=["annotation", "resource", "kind", "key", "depth"],
)
async def test_no_corner_of_a_block_keeps_a_hidden_character(block: dict[str, Any]):
    outcome = succeeded(await result_of({"content": [block]}))
    assert TAG not in repr(outcome.content)
    for shown in (json.dumps(outcome.content, ensure_ascii=False), tool_message(outcome)):
        assert TAG not in shown
        assert "\\u001b" not in shown
        assert "\x1b" not in shown
    assert outcome.warnings == ("characters made harmless: 1 tag, 1 control",)


async def test_structured_content_is_cleaned_like_text():
    outcome = succeeded(await result_of({"content": [], "structuredContent": {"a": [f"b{BIDI}"]}}))
    assert outcome.structured == {"a": ["b"]}
    assert outcome.warnings == ("characters made harmless: 1 bidi",)


async def test_ordinary_text_passes_as_it_is():
    said = "Grüße, 👩‍👩‍👧, می‌خواهم\n\ttabs\r\n"
    outcome = succeeded(await result_of(text(said)))
    assert outcome.text == said
    assert outcome.warnings == ()


@pytest.mark.requirement("hygiene:leaks:results", "hygiene:leaks:mask")
@pytest.mark.parametrize(
    "result",
    [
        text(f"key {AWS_KEY} end"),
        text("one", f"key {AWS_KEY} end"),
        {"content": [], "structuredContent": {"a": [f"key {AWS_KEY}"]}},
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": AWS_KEY}}]},
        {"content": [{"type": AWS_KEY, "text": "a"}]},
    ],
)
async def test_a_credential_in_a_result_is_masked_wherever_it_stands(result: dict[str, Any]):
    outcome = succeeded(await result_of(result))
    assert AWS_KEY not in repr(outcome)
    assert "[masked:" in repr(outcome.content) + repr(outcome.structured)
    [warning] = outcome.warnings
    assert warning.startswith("credentials masked in the result: ")


@pytest.mark.requirement("hygiene:leaks:results", "hygiene:leaks:block")
async def test_under_block_a_result_with_a_credential_is_withheld():
    outcome = failed(
        await result_of(text(f"key {AWS_KEY}"), hygiene={"leaks": "block"}), "mcp_policy_denied"
    )
    assert outcome.text == ""
    assert outcome.content == ()
    assert AWS_KEY not in repr(outcome)


@pytest.mark.requirement("hygiene:leaks:off")
async def test_under_off_nothing_is_scanned():
    world = World(server("fs", hygiene={"leaks": "off"}))
    world.caller.answers("read", text(AWS_KEY))
    outcome = succeeded(await world.session().call("mcp__fs__read", {"text": AWS_KEY}))
    assert outcome.text == AWS_KEY
    assert outcome.warnings == ()
    assert AWS_KEY.encode() in world.sent[0].payload


@pytest.mark.requirement("hygiene:leaks:arguments", "hygiene:leaks:mask")
@pytest.mark.parametrize("answer", ["plain", "nicht ganz so schlicht: ü"])
async def test_a_credential_in_the_arguments_is_masked_before_they_leave(answer: str):
    world = World()
    world.caller.answers("read", text(answer))
    outcome = succeeded(await world.session().call("mcp__fs__read", {"text": f"use {AWS_KEY}"}))
    [sent] = world.sent
    assert AWS_KEY.encode() not in sent.payload
    assert b"[masked:" in sent.payload
    [warning] = outcome.warnings
    assert warning.startswith("credentials masked in the arguments: ")


@pytest.mark.requirement("hygiene:leaks:arguments", "hygiene:leaks:block")
async def test_under_block_arguments_with_a_credential_never_leave():
    world = World(server("fs", hygiene={"leaks": "block"}))
    outcome = failed(
        await world.session().call("mcp__fs__read", {"text": AWS_KEY}), "mcp_policy_denied"
    )
    assert not world.sent
    assert AWS_KEY not in repr(outcome)
    assert AWS_KEY not in repr(world.ledger.events)


@pytest.mark.requirement("references:never-written", "security:no-credentials-in-logs")
@pytest.mark.parametrize("redact", ["shape", "full", {"keys": ["other"]}])
@pytest.mark.parametrize("leaks", ["mask", "block"])
async def test_a_value_from_a_reference_is_in_no_outcome_and_no_event(leaks: str, redact: Any):
    world = World(server("fs", hygiene={"leaks": leaks, "redact": redact}))
    world.caller.hide(SECRET)
    session = world.session()
    outcomes = [await session.call("mcp__fs__read", {"text": f"is it {SECRET}?"})]
    for answer in (
        text(f"my password is {SECRET}"),
        text(f"no: {SECRET}", isError=True),
        RemoteError(-32603, f"boom {SECRET}"),
    ):
        world.caller.answers("read", answer)
        outcomes.append(await session.call("mcp__fs__read", {"text": "a"}))
    for written in (*outcomes, *world.ledger.events):
        assert SECRET not in repr(written)
    for outcome in outcomes:
        assert SECRET not in tool_message(outcome, always_json=True)
    assert all(SECRET.encode() not in sent.payload for sent in world.sent)


@pytest.mark.requirement("references:never-written")
async def test_a_plain_value_from_a_reference_may_be_read_but_is_not_written_down():
    world = World(server("fs", hygiene={"redact": {"keys": []}}))
    world.caller.reference_values = frozenset({"/srv/data/notes"})
    world.caller.answers("read", text("see /srv/data/notes"))
    outcome = await world.session().call("mcp__fs__read", {"text": "/srv/data/notes"})
    assert succeeded(outcome).text == "see /srv/data/notes"
    assert "/srv/data/notes" not in repr(world.ledger.events)


@pytest.mark.requirement("references:never-written")
@pytest.mark.parametrize("padding", [0, 4090])
async def test_a_secret_in_an_error_is_masked_even_where_the_message_is_cut(padding: int):
    world = World()
    world.caller.hide(SECRET)
    world.caller.answers("read", RemoteError(-32603, "e" * padding + SECRET))
    outcome = failed(await world.session().call("mcp__fs__read"), "mcp_tool_error")
    assert SECRET[:5] not in outcome.error.message
    assert len(outcome.error.message) <= 4096


@pytest.mark.requirement("references:never-written", "hygiene:control-characters")
async def test_what_a_server_says_while_listing_is_cleaned_too():
    world = World()
    world.caller.hide(SECRET)
    world.caller.offers(world.records[0], "read", warnings=[f"quarantined: \x1b[2J{SECRET}"])
    tools = await world.session().tools()
    [warning] = tools.warnings
    for said in (warning, repr(world.ledger.events)):
        assert SECRET not in said
        assert "\x1b" not in said
        assert "quarantined" in said


@pytest.mark.requirement("bridge:content-kept")
async def test_blocks_are_kept_as_they_came_unknown_kinds_included():
    blocks = [
        {"type": "text", "text": "a", "annotations": {"priority": 1}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "hologram", "frames": [1, 2.5, None, True], "meta": {"x": {}}},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ]
    outcome = succeeded(await result_of({"content": blocks}))
    assert list(outcome.content) == blocks
    assert outcome.text == "a"
    blocks[1] = {"type": "text", "text": "[image: image/png, 3 bytes]"}
    assert json.loads(tool_message(outcome)) == {"content": blocks}


async def test_what_is_no_block_is_kept_as_one_of_an_unknown_kind():
    outcome = succeeded(await result_of({"content": ["text", 7, None]}))
    assert outcome.text == ""
    kept = [block["value"] for block in outcome.content]
    assert kept == ["text", 7, None]
    assert succeeded(await result_of({"content": []})).content == ()


async def test_text_does_not_repeat_what_structured_content_says():
    value = {"answer": 42}
    both = succeeded(await result_of(text(json.dumps(value), structuredContent=value)))
    assert json.loads(both.text) == value
    assert both.structured == value
    assert both.unwrap() == value
    alone = succeeded(await result_of({"content": [], "structuredContent": value}))
    assert json.loads(alone.text) == value
    prose = succeeded(await result_of(text("It is 42.", structuredContent=value)))
    assert prose.text == "It is 42."


@pytest.mark.parametrize("leaks", ["mask", "off"])
async def test_numbers_beyond_64_bits_pass(leaks: str):
    value = {"big": 2**80}
    result = {"content": [{"type": "novel", "n": 2**80}], "structuredContent": value}
    outcome = succeeded(await result_of(result, hygiene={"leaks": leaks}))
    assert outcome.structured == value
    assert json.loads(outcome.text) == json.loads(tool_message(outcome)) == value


@pytest.mark.requirement(
    "outcomes:too-large", "outcomes:cut:utf8", "outcomes:cut:marker", "outcomes:cut:handle"
)
async def test_a_long_text_is_cut_on_a_character_and_says_how_to_read_on():
    world = World(server("fs", budgets={"max_tool_output_bytes": 300}))
    whole = "é" * 500
    world.caller.answers("read", text(whole))
    session = world.session()
    outcome = was_cut(await session.call("mcp__fs__read"))
    cut = outcome.truncated
    assert cut is not None
    assert cut.total == 1000
    assert (
        outcome.text == "é" * (cut.shown // 2) + f"\n[truncated: {cut.shown} of 1000 bytes shown]"
    )
    assert len(outcome.text.encode()) <= 300
    assert cut.handle is not None
    assert session.read_output(cut.handle) == whole
    assert session.read_output(cut.handle, cut.shown, cut.shown + 10) == "é" * 5
    assert session.read_output(cut.handle, 999) == ""
    assert session.read_output(cut.handle, 1, 4) == "é"


@pytest.mark.requirement("outcomes:cut:handle-ends")
async def test_a_handle_is_gone_when_its_session_has_ended_and_is_nobody_elses():
    world = World(server("fs", budgets={"max_tool_output_bytes": 10}))
    world.caller.answers("read", text("x" * 100))
    session, other = world.session(), world.session()
    cut = was_cut(await session.call("mcp__fs__read")).truncated
    assert cut is not None
    assert cut.handle is not None
    with pytest.raises(KeyError):
        other.read_output(cut.handle)
    await session.close()
    with pytest.raises(KeyError):
        session.read_output(cut.handle)


@pytest.mark.requirement(
    "outcomes:cut:valid-json", "outcomes:message:json", "outcomes:structured-field"
)
async def test_cut_structured_content_is_valid_json_and_says_that_it_was_cut():
    world = World(server("fs", budgets={"max_tool_output_bytes": 400}))
    value = {"rows": [f'row "{n}" é' for n in range(200)]}
    world.caller.answers("read", text(json.dumps(value), structuredContent=value))
    session = world.session()
    outcome = was_cut(await session.call("mcp__fs__read"))
    message = json.loads(tool_message(outcome))
    assert message["error"]["code"] == "mcp_output_too_large"
    cut = outcome.truncated
    assert cut is not None
    assert message["truncated"] == {"shown": cut.shown, "total": cut.total, "handle": cut.handle}
    assert message["text"] == outcome.text == outcome.structured["json"]
    assert cut.handle is not None
    assert json.loads(session.read_output(cut.handle)) == value


@pytest.mark.requirement("outcomes:cut:handle")
async def test_the_handle_holds_structured_content_that_the_text_does_not_repeat():
    world = World(server("fs", budgets={"max_tool_output_bytes": 200}))
    value = {"rows": ["x" * 50] * 10}
    world.caller.answers("read", text("ten rows", structuredContent=value))
    session = world.session()
    cut = was_cut(await session.call("mcp__fs__read")).truncated
    assert cut is not None
    assert cut.handle is not None
    kept = session.read_output(cut.handle)
    assert kept.startswith("ten rows\n")
    assert json.loads(kept.partition("\n")[2]) == value


async def test_what_is_kept_behind_a_handle_is_cleaned_as_well():
    world = World(server("fs", budgets={"max_tool_output_bytes": 20}))
    world.caller.hide(SECRET)
    world.caller.answers("read", text("x" * 50 + f"{TAG}\x1b[2J {SECRET} {AWS_KEY}"))
    session = world.session()
    cut = was_cut(await session.call("mcp__fs__read")).truncated
    assert cut is not None
    assert cut.handle is not None
    kept = session.read_output(cut.handle)
    for forbidden in (TAG, "\x1b", SECRET, AWS_KEY):
        assert forbidden not in kept


async def test_a_long_tool_error_is_cut_and_stays_a_tool_error():
    world = World(server("fs", budgets={"max_tool_output_bytes": 200}))
    world.caller.answers("read", text("e" * 1000, isError=True))
    outcome = failed(await world.session().call("mcp__fs__read"), "mcp_tool_error")
    assert isinstance(outcome.truncated, Truncation)
    assert len(outcome.error.message) <= 200


async def test_a_result_exactly_at_the_cap_is_whole():
    outcome = succeeded(await result_of(text("x" * 300), budgets={"max_tool_output_bytes": 300}))
    assert outcome.truncated is None
    assert len(outcome.text) == 300
