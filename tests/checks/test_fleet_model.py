"""The model of a fleet: what it must give where anybody can work it out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.fleet_model import BOOKMARK_SECONDS, RHYTHM, Costs, Fleet, quiet, rolling, storm

NOTHING = Costs(opening=0.0, poll=0.0, report=0.0, bookmark=0.0)


def test_quiet_nodes_cost_what_their_bookmarks_and_reports_cost():
    costs = replace_costs(bookmark=4e-5, report=1e-3)
    expected = 1_000 * (4e-5 / BOOKMARK_SECONDS + 1e-3 / RHYTHM.report_seconds)
    assert quiet(1_000, 1, costs) == pytest.approx(expected, rel=0.05)
    assert quiet(1_000, 2, costs) == pytest.approx(expected / 2, rel=0.05)


def test_polls_cost_more_where_nothing_spares_them():
    mean = (RHYTHM.poll_seconds + RHYTHM.poll_limit_seconds) / 2
    found = quiet(1_000, 1, replace_costs(poll=1e-3), polling=True)
    assert found == pytest.approx(1_000 * 1e-3 / mean, rel=0.1)
    assert quiet(1_000, 1, replace_costs(poll=1e-3)) == 0


def test_nodes_of_replicas_that_cost_nothing_are_back_within_one_pause():
    back = storm(500, 2, NOTHING, away=20.0)
    assert len(back.seconds) == 500
    assert back.part(1.0) <= RHYTHM.backoff_limit_seconds
    assert (back.late, back.tries) == (0, 500)
    assert back.fullest == pytest.approx(0.5, abs=0.06)


def test_a_replica_that_is_slow_to_begin_streams_takes_as_long_as_all_of_them_need():
    back = storm(500, 1, replace_costs(opening=0.015), away=20.0)
    assert back.part(1.0) == pytest.approx(500 * 0.015, rel=0.2)
    assert back.late == 0


def test_answers_that_come_too_late_are_asked_for_again_until_all_are_back():
    back = storm(500, 1, replace_costs(opening=0.05), away=20.0)
    assert back.late > 0
    assert back.tries == 500 + back.late


def test_in_a_rolling_restart_every_node_finds_another_replica():
    back = rolling(300, 3, replace_costs(opening=0.001))
    assert len(back.seconds) >= 300
    assert back.part(1.0) < RHYTHM.answer_seconds
    assert back.fullest > 1 / 3, "whoever was restarted last has the fewest"


def test_a_node_that_is_told_to_wait_longer_does():
    patient = replace(RHYTHM, backoff_limit_seconds=30.0)
    short, long = (storm(200, 1, NOTHING, 60.0, rhythm=one) for one in (RHYTHM, patient))
    assert short.part(0.5) < long.part(0.5)


def test_the_same_seed_gives_the_same_fleet():
    costs = replace_costs(opening=0.001)
    assert storm(100, 2, costs, 20.0) == storm(100, 2, costs, 20.0)
    assert storm(100, 2, costs, 20.0) != storm(100, 2, costs, 20.0, seed=8)


def test_time_passes_without_events():
    fleet = Fleet(0, 1, NOTHING)
    fleet.run(5.0)
    assert fleet.now == 5.0


def replace_costs(**given: float) -> Costs:
    return Costs(**{"opening": 0.0, "poll": 0.0, "report": 0.0, "bookmark": 0.0, **given})
