"""The floor server of the benchmark answers like a server, on both of its paths."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

FLOOR = Path(__file__).parents[2] / "bench" / "floor_server.py"


@pytest.fixture
def floor(spawn):
    return spawn(sys.executable, "-I", "-S", str(FLOOR))


def test_it_shakes_hands_lists_and_refuses_the_probe(floor):
    assert floor.modern("server/discover")["error"]["code"] == -32601
    assert floor.ask("initialize")["result"]["protocolVersion"] == "2025-11-25"
    floor.send(method="notifications/initialized")
    (listed,) = floor.ask("tools/list")["result"]["tools"]
    assert (listed["name"], listed["inputSchema"]["required"]) == ("echo", ["text"])
    assert floor.end() == 0


def test_compact_and_roomy_calls_get_the_same_answer(floor):
    assert floor.call("echo", text='a "quoted"\n text')["result"]["content"][0]["text"] == (
        'a "quoted"\n text'
    )
    params = b'{"name":"echo","arguments":{"text":"' + b"x" * 200 + b'"}}'
    for key in (b"7", b'"s-8"'):
        frame = b'{"jsonrpc":"2.0","id":' + key + b',"method":"tools/call","params":' + params
        os.write(floor.stdin, frame + b"}\n")
        line = floor.line()
        assert b'"id":' + key + b"," in line
        assert b'"text":"' + b"x" * 200 + b'"' in line
        assert 280 <= len(line) <= 310


def test_several_lines_in_one_read_and_one_line_in_several(floor):
    frame = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'
    os.write(floor.stdin, frame % 1 + frame % 2 + b'{"jsonrpc":"2.0",')
    assert [floor.frame()["id"] for _ in range(2)] == [1, 2]
    os.write(floor.stdin, b'"id":3,"method":"ping"}\n')
    assert floor.frame()["id"] == 3
