"""The machine of states: what is on the map, and what is not."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from bascule.model.status import PHASES, State, health_of
from bascule.node.pool.state import ARROWS, IllegalMove, Machine

STATES: tuple[State, ...] = get_args(State)


@pytest.mark.requirement("pool:states")
def test_there_are_eight_states_and_a_connection_starts_disconnected():
    assert set(STATES) == {
        "disconnected",
        "connecting",
        "connected",
        "degraded",
        "reconnecting",
        "down",
        "parked",
        "disabled",
    }
    assert set(ARROWS) == set(STATES)
    assert Machine().state == "disconnected"


@pytest.mark.requirement("pool:states:legal")
@pytest.mark.parametrize(("origin", "to"), list(product(STATES, STATES)))
def test_a_machine_moves_along_its_arrows_and_nowhere_else(origin: State, to: State):
    machine = Machine()
    machine.state = origin
    if to == origin or to in ARROWS[origin]:
        machine.move(to)
        assert machine.state == to
    else:
        with pytest.raises(IllegalMove, match=f"{origin} -> {to}"):
            machine.move(to)
        assert machine.state == origin


def test_nothing_is_connected_without_having_connected():
    before = {origin for origin, targets in ARROWS.items() if "connected" in targets}
    assert before == {"connecting", "reconnecting", "degraded"}


def test_a_disabled_server_is_enabled_before_anything_else():
    assert ARROWS["disabled"] == {"disconnected"}


def test_every_state_can_be_left_and_ended():
    assert all(targets for targets in ARROWS.values())
    endable = set(STATES) - {"disconnected"}
    assert all("disconnected" in ARROWS[state] for state in endable)
    assert all("disabled" in ARROWS[state] for state in STATES if state != "disabled")


@pytest.mark.requirement("pool:states:seed-words")
def test_the_seeds_words_map_to_the_machine():
    assert set(PHASES) == set(STATES)
    assert {s for s in STATES if PHASES[s] == "failed"} == {"down", "parked"}
    assert {s for s in STATES if PHASES[s] == "connecting"} == {"connecting", "reconnecting"}
    assert {health_of(s) for s in STATES} == {"Connected", "Degraded", "Down"}
    assert {s for s in STATES if health_of(s) == "Connected"} == {"connected"}
    assert {s for s in STATES if health_of(s) == "Degraded"} == {"degraded", "reconnecting"}
