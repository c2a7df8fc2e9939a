"""The status of servers that nobody uses is made once, and connections stand among them."""

from __future__ import annotations

from msgspec.structs import replace

from bascule import Bridge, Server
from bascule.model.server import ServerRecord
from bascule.model.status import ServerStatus
from bascule.node.pool.idle_status import Resting


def records(*names: str) -> dict[str, ServerRecord]:
    return {n: ServerRecord(server_id=n, transport="stdio", enabled=n != "off") for n in names}


def test_what_is_at_rest_is_said_with_the_same_objects_every_time():
    resting = Resting(records("b", "a", "off"))
    first, again = resting.beside([]), resting.beside([])
    assert [(s.server_id, s.state) for s in first] == [
        ("a", "disconnected"),
        ("b", "disconnected"),
        ("off", "disabled"),
    ]
    assert all(old is new for old, new in zip(first, again, strict=True))


def test_a_bridge_makes_no_new_objects_of_what_is_at_rest():
    many = [replace(Server.stdio(f"s{n}", "true"), allowed_tools=("*",)) for n in range(3)]
    bridge = Bridge.open(many)
    first, again = bridge.statuses(), bridge.statuses()
    assert len(first) == len(many)
    assert all(old is new for old, new in zip(first, again, strict=True))


def test_connections_stand_in_the_place_of_their_servers_in_order():
    resting = Resting(records("a", "b", "d"))
    b, second = (
        ServerStatus(server_id="b", state="connected"),
        ServerStatus(server_id="b", state="down"),
    )
    removed = ServerStatus(server_id="c", state="connected")
    found = resting.beside([removed, b, second])
    assert [(s.server_id, s.state) for s in found] == [
        ("a", "disconnected"),
        ("b", "connected"),
        ("b", "down"),
        ("c", "connected"),
        ("d", "disconnected"),
    ]
    assert resting.beside([])[1].state == "disconnected"
