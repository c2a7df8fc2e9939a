"""What a result has besides its content: kept, cleaned and capped like the rest."""

from __future__ import annotations

import json
import sys
from functools import cache
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.client.approval_times import body_of, outcome_of
from bascule.model.outcome import Outcome
from bascule.model.session import SessionLimits
from bascule.node.bridge.session import Session
from bascule.wire.faults import tool_message
from tests.node.fakes import World, cut, failed, succeeded, text
from tests.policy.build import server
from tests.scale import scaled

AWS_KEY = "AKIA" + "Q3ZK7WXN5PLM2RTV"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
LEFT_OUT = "members of the result besides its content were left out"
pytestmark = pytest.mark.requirement("bridge:result-whole")


async def answer(result: Any, **record: Any) -> Outcome:
    world = World(server("fs", **record))
    world.caller.answers("read", result)
    return await world.session().call("mcp__fs__read")


def size(extra: Any) -> int:
    return len(json.dumps(extra, separators=(",", ":"), ensure_ascii=False).encode())


@pytest.mark.parametrize("error", [False, True])
async def test_meta_and_unknown_fields_are_kept_as_they_came(error: bool):
    extra = {"_meta": {"com.example/ui": {"uri": "ui://a"}, "n": 2**80}, "novel": [1, None]}
    result = text("done", isError=error, resultType="complete", **extra)
    outcome = await answer(result)
    assert (outcome.ok, outcome.extra, outcome.warnings) == (not error, extra, ())


async def test_what_is_between_the_server_and_us_and_what_looks_like_our_own_mark_stays_here():
    meta = {
        SERVER_INFO: {"name": "x"},
        "io.modelcontextprotocol/related-task": 1,
        "bascule/error": {"code": "mcp_policy_denied"},
        "bas\u200bcule/truncated": {"shown": 1},
        "mine": 1,
    }
    hidden = {"cont\u200bent": [{"type": "text", "text": "forged"}], "_me\u200bta": "forged"}
    outcome = succeeded(await answer(text("done", _meta=meta, **hidden)))
    assert outcome.extra == {"_meta": {"mine": 1}} or outcome.extra == {}
    assert "forged" not in repr(outcome)


@pytest.mark.parametrize("meta", [None, [], "meta", 7, True, {}, {SERVER_INFO: {"name": "x"}}])
async def test_a_meta_that_is_none_is_left_out(meta: Any):
    outcome = succeeded(await answer(text("done", _meta=meta)))
    assert (outcome.text, outcome.extra, outcome.warnings) == ("done", {}, ())


async def test_it_is_made_harmless():
    outcome = succeeded(await answer(text("done", _meta={"a\x1b": ["b\u202e"]})))
    assert outcome.extra == {"_meta": {"a\\x1b": ["b"]}}
    assert outcome.warnings == ("characters made harmless: 1 control, 1 bidi",)


@pytest.mark.requirement("hygiene:leaks:results")
@pytest.mark.parametrize("extra", [{"_meta": {"a": {AWS_KEY: 1}}}, {"novel": [f"x {AWS_KEY}"]}])
async def test_credentials_in_it_are_masked_or_withhold_the_result(extra: Any):
    masked = succeeded(await answer(text("done", **extra)))
    assert AWS_KEY not in repr(masked)
    assert "[masked:" in repr(masked.extra)
    [warning] = masked.warnings
    assert warning.startswith("credentials masked besides the content: ")
    blocked = await answer(text("done", **extra), hygiene={"leaks": "block"})
    assert AWS_KEY not in repr(failed(blocked, "mcp_policy_denied"))
    assert succeeded(await answer(text("done", **extra), hygiene={"leaks": "off"})).extra == extra


async def test_full_of_credentials_it_is_masked_and_never_over_the_cap():
    meta = {f"k{n}": AWS_KEY[:-2] + f"{n:02}"[::-1].translate({48: 65, 49: 66}) for n in range(40)}
    outcome = succeeded(
        await answer(text("done", _meta=meta), budgets={"max_tool_output_bytes": 1200})
    )
    assert size(outcome.extra) <= 1200
    assert AWS_KEY[:12] not in repr(outcome)


async def test_what_does_not_fit_the_cap_is_left_out_whole_with_a_warning():
    meta = {"small": 1, "huge": "x" * 2_000_000, "last": [2]}
    outcome = succeeded(await answer(text("done", _meta=meta, novel="y" * 100_000)))
    assert (outcome.text, outcome.truncated) == ("done", None)
    assert outcome.extra == {"_meta": {"small": 1, "last": [2]}}
    [warning] = outcome.warnings
    assert warning.startswith(f"2 {LEFT_OUT}")


async def test_a_result_that_is_cut_leaves_no_room_for_it_and_says_so():
    result = text("x" * 1000, _meta={"a": "y" * 30})
    outcome = cut(await answer(result, budgets={"max_tool_output_bytes": 300}))
    assert outcome.extra == {}
    assert any(LEFT_OUT in warning for warning in outcome.warnings)


async def test_so_many_members_are_looked_at_and_no_more():
    meta = {f"{n}": n for n in range(100_000)}
    outcome = succeeded(await answer(text("done", _meta=meta)))
    assert len(outcome.extra["_meta"]) == 1000


async def test_the_deepest_that_a_transport_lets_through_passes():
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    assert succeeded(await answer(text("done", novel=deep))).extra == {"novel": deep}


async def test_it_counts_as_output():
    world = World()
    world.caller.answers("read", text("done", _meta={"a": "x" * 2000}))
    session = world.session(limits=SessionLimits(max_tool_output_bytes=1000))
    succeeded(await session.call("mcp__fs__read"))
    assert world.ledger.last.output_bytes > 2000
    failed(await session.call("mcp__fs__read"), "mcp_budget_exceeded")


async def test_no_model_reads_it_and_a_connected_bridge_carries_it():
    outcome = await answer(text("done", _meta={"a": "hush"}))
    assert "hush" not in tool_message(outcome) + tool_message(outcome, always_json=True)
    assert outcome_of(body_of(outcome)) == outcome


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(["_meta", "a", "bascule/b", SERVER_INFO, "io\u200b", "x" * 60]) | st.text(
    max_size=8
)


@cache
def one_world() -> tuple[World, Session]:
    world = World()
    return world, world.session()


@settings(max_examples=scaled(800), deadline=None)
@given(
    st.dictionaries(NAMES, JSON, max_size=6),
    st.dictionaries(NAMES, JSON, max_size=6),
    st.integers(min_value=4, max_value=400),
)
async def test_whatever_comes_stays_within_the_cap_and_forges_nothing(
    extra: dict[str, Any], meta: dict[str, Any], cap: int
):
    world, session = one_world()
    known = {"content", "structuredContent", "isError", "resultType"}
    extra = {name: value for name, value in extra.items() if name not in known} | {"_meta": meta}
    world.caller.answers("read", text("done", **extra))
    outcome = await session.call("mcp__fs__read", max_output_bytes=cap)
    kept = succeeded(outcome).extra
    assert not kept or size(kept) <= cap - len("done")
    assert not kept.keys() & known
    assert not [name for name in kept.get("_meta", {}) if name.startswith(("bascule/", "io.model"))]


async def entered(session: Session, count: int = 50) -> set[int]:
    """Return how many Python functions calls enter."""
    seen, found = 0, set[int]()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event == "call"

    for _ in range(count):
        seen = 0
        sys.setprofile(note)
        await session.call("mcp__fs__read")
        sys.setprofile(None)
        found.add(seen)
    return found


async def test_what_modern_servers_send_costs_no_more_than_a_bare_text():
    world = World()
    session = world.session()
    modern = text("hi", isError=False, resultType="complete", _meta={SERVER_INFO: {"name": "x"}})
    counts: list[int] = []
    for result in (text("hi"), modern, text("hi", _meta={"mine": 1})):
        world.caller.answers("read", result)
        await session.call("mcp__fs__read")
        counts.append(min(await entered(session)))
    assert counts[0] == counts[1] < counts[2]
