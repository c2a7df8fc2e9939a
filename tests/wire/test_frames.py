"""Frames: bytes that were decided on leave untouched, and each answer finds its caller or none."""

from __future__ import annotations

import json

import pytest

from bascule.wire import frames
from bascule.wire.frames import Broken, Fault, Frame, Noise, Notice, Reply, Request


def test_a_request_carries_the_given_bytes_untouched():
    arguments = b'{"b":1.50, "a":"\\u00e9"}'
    frame = frames.request(7, "tools/call", arguments)
    assert frame == b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%b}' % arguments


def test_what_we_send_is_json_rpc():
    assert json.loads(frames.notification("notifications/x", b"{}")) == {
        "jsonrpc": "2.0",
        "method": "notifications/x",
        "params": {},
    }
    assert json.loads(frames.response('a"b', b'{"x":1}')) == {
        "jsonrpc": "2.0",
        "id": 'a"b',
        "result": {"x": 1},
    }
    assert json.loads(frames.error_response(3, -32601, 'no "x"')) == {
        "jsonrpc": "2.0",
        "id": 3,
        "error": {"code": -32601, "message": 'no "x"'},
    }


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[1]}}', Reply(1, {"x": [1]})),
        (b'{"id": 1, "result": null, "jsonrpc": "2.0"}', Reply(1, None)),
        (
            b'{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no","data":[1]}}',
            Fault(2, -32601, "no", [1]),
        ),
        (b'{"jsonrpc":"2.0","id":2,"error":{"code":1}}', Fault(2, 1, "", None)),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
            Fault(None, -32700, "?", None),
        ),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping"}', Request("a", "ping", None)),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"y":1}}', Request(5, "x", {"y": 1})),
        (b'{"jsonrpc":"2.0","method":"x","params":{"y":1}}', Notice("x", {"y": 1})),
    ],
)
def test_each_kind_of_frame_is_told_apart(line: bytes, frame: Frame):
    assert frames.read(line) == frame


@pytest.mark.parametrize(
    "line",
    [
        b"starting up...",
        b"",
        b"[1,2]",
        b"17",
        b'{"level":"info","id":5,"msg":"a log line"}',
        b"{level: info, not json}",
        b'{"jsonrpc":"2.0","id":"1","result":{}}',
        b'{"jsonrpc":"2.0","id":1.0,"result":{}}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":"text"}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","id":[1],"method":"x"}',
        b'{"jsonrpc":"2.0","method":7}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"n":NaN}}',
        b'{"jsonrpc":"2.0","id":4,"method":"x","params":{"n":NaN}}',
    ],
)
def test_what_answers_none_of_our_requests_is_noise(line: bytes):
    assert isinstance(frames.read(line), Noise)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":9,"result":{"n":NaN}}',
        b'{"jsonrpc":"2.0","id":9,"result":{},"result":{}}',
        b'{"jsonrpc":"2.0","id":9,"result":{"text":"\xff"}}',
        b'{"jsonrpc":"2.0","id":9,"result":{"text":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":9,"result":' + b"[" * 300_000,
        b' { "jsonrpc" : "2.0" , "id" : 9 , "result" : {',
        b'{"id":9,"jsonrpc":"2.0","result":{',
        b'{"result":{"n":NaN},"jsonrpc":"2.0","id":9}',
        b'{"result":{"id":3,"n":NaN},"id":9,"jsonrpc":"2.0"}\r',
        b'{"jsonrpc":"2.0","id":9,"result":{},"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0","id":9}',
        b'{"jsonrpc":"2.0","id":9,"error":"text"}',
        b'{"jsonrpc":"2.0","id":9,"error":{"code":"1","message":"x"}}',
        b'{"id":9,"result":{}}',
        b'{"jsonrpc":"1.0","id":9,"result":{}}',
    ],
)
def test_an_unreadable_answer_says_whose_it_was(line: bytes):
    frame = frames.read(line)
    assert isinstance(frame, Broken)
    assert frame.id == 9


@pytest.mark.parametrize(
    "line",
    [
        b'{"result":{"id":9,"n":NaN},"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","result":{"n":NaN,"id":9}}',
        b'{"jsonrpc":"2.0","result":{"n":NaN},"id":"9"}',
        b'{"jsonrpc":"2.0","x":1,"id":9,"result":{"n":NaN}}',
    ],
)
def test_an_id_that_cannot_be_trusted_is_not_guessed(line: bytes):
    frame = frames.read(line)
    assert isinstance(frame, Broken)
    assert frame.id is None


def test_an_answer_over_the_cap_is_known_by_its_head():
    head = b'{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"'
    frame = frames.read(head + b"x" * 5000 + b'"}]}}', 4096)
    assert isinstance(frame, Broken)
    assert frame.id == 12
    assert frames.unreadable(head, "cut") == Broken(12, "cut")


def test_a_batch_is_read_one_by_one():
    line = b'[{"jsonrpc":"2.0","id":1,"result":{}},7,{"jsonrpc":"2.0","method":"x"}]'
    assert frames.read_batch(line) == [Reply(1, {}), Notice("x", None)]
    for refused in (b"[NaN]", b"[" + b"{}," * frames.MAX_BATCH + b"{}]"):
        assert [type(frame) for frame in frames.read_batch(refused)] == [Noise]
