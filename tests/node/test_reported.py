"""Of several connections of a server, the one that says most of it is reported."""

from __future__ import annotations

import pytest

from bascule.model.status import ConnectionStatus, ServerStatus, State
from bascule.node.sync.reported import reported


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (("connected", "down"), "down"),
        (("degraded", "down", "connected"), "down"),
        (("connecting", "connected"), "connected"),
        (("disconnected", "connected"), "connected"),
        (("disconnected", "connecting"), "connecting"),
        (("connected", "reconnecting"), "reconnecting"),
    ],
)
def test_the_worst_in_trouble_is_told_and_else_one_that_serves(
    states: tuple[State, ...], told: State
):
    for order in (states, states[::-1]):
        [found] = reported([ConnectionStatus(server_id="fs", state=state) for state in order])
        assert (type(found), found.state) == (ServerStatus, told)


def test_each_server_is_told_of_once_in_its_order():
    names = ("b", "a", "b", "c")
    found = reported([ConnectionStatus(server_id=name, state="connected") for name in names])
    assert [one.server_id for one in found] == ["b", "a", "c"]
