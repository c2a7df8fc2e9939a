"""Results that wait for a caller to come back."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.doors.chat.held_results import HeldResults, ResultsGone
from bascule.loop.events import Conclusion
from bascule.testing.clock import FakeClock
from tests.loop.fakes import call

USER = {"role": "user", "content": "hello"}
Json = dict[str, Any]
ALICE = ("tok", "alice")


def result(call_id: str, content: str = "x") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def mixed(content: str = "ours") -> Conclusion:
    """Conclude a turn with one call of ours and two of the caller's."""
    calls = [call("own", None, "c1"), call("mcp__fs__read", None, "c2"), call("own", None, "c3")]
    return Conclusion(
        head={},
        content=None,
        finish_reason="tool_calls",
        tool_calls=(calls[0], calls[2]),
        appended=(
            {"role": "assistant", "content": None, "tool_calls": calls},
            result("c2", content),
        ),
    )


def back(kept: Conclusion, *contents: str) -> tuple[Json, ...]:
    """Return the history that an unmodified client sends."""
    calls = list(kept.tool_calls)[: len(contents)]
    said = {"role": "assistant", "content": "joined", "tool_calls": calls}
    results = [result(str(one["id"]), text) for one, text in zip(calls, contents, strict=True)]
    return (USER, said, *results)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def held(clock: FakeClock) -> HeldResults:
    return HeldResults(clock)


def test_what_was_kept_stands_in_its_place_again(held: HeldResults):
    kept = held.keep(ALICE, mixed())
    restored, warnings = held.restore(ALICE, back(kept, "one", "two"))
    assert warnings == ()
    assert [m["content"] for m in restored] == ["hello", None, "one", "ours", "two"]
    ids = [one["id"] for one in restored[1]["tool_calls"]]
    assert ids == [m["tool_call_id"] for m in restored[2:]]


def test_it_may_be_sent_any_number_of_times(held: HeldResults):
    history = back(held.keep(ALICE, mixed()), "one", "two")
    assert held.restore(ALICE, history) == held.restore(ALICE, history)


def test_ids_cannot_be_guessed_and_those_of_an_upstream_that_repeats_them_are_not_mixed_up(
    held: HeldResults,
):
    first, second = held.keep(ALICE, mixed("first")), held.keep(ALICE, mixed("second"))
    assert not {str(c["id"]) for c in first.tool_calls} & {str(c["id"]) for c in second.tool_calls}
    restored, _ = held.restore(ALICE, back(first, "one", "two"))
    assert restored[3]["content"] == "first"


def test_ids_are_short_enough_for_every_upstream(held: HeldResults):
    assert all(len(str(one["id"])) <= 40 for one in held.keep(ALICE, mixed()).tool_calls)


def test_a_call_that_the_caller_dropped_is_dropped(held: HeldResults):
    kept = held.keep(ALICE, mixed())
    restored, _ = held.restore(ALICE, back(kept, "one"))
    assert [m["content"] for m in restored] == ["hello", None, "one", "ours"]
    assert len(restored[1]["tool_calls"]) == 2


def test_nothing_is_kept_when_nothing_of_ours_ran(held: HeldResults):
    only_theirs = Conclusion(
        head={},
        content=None,
        finish_reason="tool_calls",
        tool_calls=(call("own"),),
        appended=({"role": "assistant", "tool_calls": [call("own")]},),
    )
    assert held.keep(ALICE, only_theirs) is only_theirs
    assert len(held) == 0


def test_a_history_that_knows_nothing_of_it_is_left_alone(held: HeldResults):
    history = (USER, {"role": "assistant", "tool_calls": [call("own", None, "c1")]}, result("c1"))
    restored, warnings = held.restore(ALICE, history)
    assert (restored is history, warnings) == (True, ())


async def test_a_turn_that_is_continued_too_late_is_refused(held: HeldResults, clock: FakeClock):
    history = back(held.keep(ALICE, mixed()), "one", "two")
    await clock.advance(3599)
    held.restore(ALICE, history)
    await clock.advance(1)
    with pytest.raises(ResultsGone, match="no longer kept"):
        held.restore(ALICE, history)
    assert (len(held), held.bytes) == (0, 0)


async def test_further_back_in_a_history_it_is_only_a_warning(held: HeldResults, clock: FakeClock):
    history = back(held.keep(ALICE, mixed()), "one", "two")
    await clock.advance(4000)
    longer = (*history, {"role": "assistant", "content": "So."}, USER)
    restored, [warning] = held.restore(ALICE, longer)
    assert restored == longer
    assert "no longer kept" in warning


def test_another_owner_gets_nothing(held: HeldResults):
    history = back(held.keep(ALICE, mixed()), "one", "two")
    for other in (("tok", "bob"), ("tok", None), ("tok-2", "alice")):
        with pytest.raises(ResultsGone):
            held.restore(other, history)
    assert held.restore(ALICE, history)[1] == ()


def test_memory_is_bounded_for_each_owner_and_for_all(clock: FakeClock):
    held = HeldResults(clock, max_bytes=5000, max_bytes_each=2500)
    first = held.keep(ALICE, mixed("x" * 1000))
    for _ in range(5):
        held.keep(ALICE, mixed("x" * 1000))
    assert held.bytes <= 2500
    with pytest.raises(ResultsGone):
        held.restore(ALICE, back(first, "one", "two"))
    for owner in "bcdefgh":
        held.keep((owner, None), mixed("x" * 1000))
    assert held.bytes <= 5000
    kept = held.keep(("zoe", None), mixed("x" * 3000))  # more than anybody may keep
    assert len(kept.tool_calls) == 2
    with pytest.raises(ResultsGone):
        held.restore(("zoe", None), back(kept, "one", "two"))


def test_all_people_of_one_token_are_bounded_together_and_push_out_no_other_token(
    clock: FakeClock,
):
    held = HeldResults(clock, max_bytes=9000, max_bytes_token=3500, max_bytes_each=2500)
    other = held.keep(("other", None), mixed("x" * 1000))
    for person in "abcdefgh":
        held.keep(("gateway", person), mixed("x" * 1000))
    assert held.bytes <= 3500 + 2500
    assert held.restore(("other", None), back(other, "one", "two"))[1] == ()


def test_a_turn_that_is_kept_comes_back_once(held: HeldResults):
    kept = held.keep(ALICE, mixed("x" * 1_000_000))
    said = back(kept, "one", "two")[1:]
    restored, warnings = held.restore(ALICE, (USER, *said * 1_000))
    assert (sum(len(m["content"] or "") > 100 for m in restored), warnings) == (1, ())
    assert restored[-3:] == said
