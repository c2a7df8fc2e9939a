"""A close look at a server: what is known will do, unless somebody asks whether it works now."""

from __future__ import annotations

import pytest

from bascule.errors import ServerUnavailable
from bascule.model.server import Budgets
from bascule.node.pool.health import DOUBT_SECONDS
from bascule.node.pool.inspection import inspect
from bascule.testing import FakeClock
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer, record


async def test_a_look_uses_the_list_there_is_and_one_afresh_asks_again(make: Make, peer: FakePeer):
    connection = make()
    await inspect(connection)
    await inspect(connection)
    assert peer.count("tools/list") == 1
    peer.tools = peer.tools[:1]
    found = await inspect(connection, afresh=True)
    assert (peer.count("tools/list"), peer.opens) == (2, 1)
    assert len(found.listing.tools) == 1


async def test_a_server_that_answers_nothing_any_more_fails_a_look_afresh_and_is_let_go(
    make: Make, peer: FakePeer, clock: FakeClock
):
    connection = make(record(budgets=Budgets(list_timeout_ms=20)))
    await inspect(connection)
    peer.hold("tools/list")
    peer.silent.add("ping")
    with pytest.raises(ServerUnavailable, match="no tool list in time"):
        await inspect(connection, afresh=True)
    peer.may_open.clear()
    await clock.advance(DOUBT_SECONDS)
    assert (connection.state, connection.status().trouble) == ("reconnecting", "dead")
    assert "sign of life" in (connection.status().last_error or "")
    await connection.close()


async def test_a_server_that_only_fails_to_list_keeps_its_connection(make: Make, peer: FakePeer):
    connection = make()
    await inspect(connection)
    peer.silent.add("tools/list")
    with pytest.raises(ServerUnavailable):
        await inspect(connection, afresh=True)
    assert (connection.state, peer.opens) == ("connected", 1)
    peer.silent.clear()
    assert (await inspect(connection, afresh=True)).listing.tools


async def test_a_look_afresh_waits_out_no_pause_after_failures(make: Make, peer: FakePeer):
    connection = make()
    peer.refusals += [ServerUnavailable("command not found") for _ in range(20)]
    for _ in range(20):
        with pytest.raises(ServerUnavailable, match=r"^command not found$"):
            await inspect(connection, afresh=True)
    assert (await inspect(connection, afresh=True)).listing.tools
    assert connection.state == "connected"
