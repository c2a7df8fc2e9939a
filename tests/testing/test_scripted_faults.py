"""The scripted server at its worst: each misbehaviour is really what it says."""

from __future__ import annotations

import json
import os
import signal

import pytest

from bascule.testing import do
from bascule.testing.peer.faults import BROKEN

UNREADABLE = {"not_json", "cut_json", "trailing_text", "bad_utf8"}


def constant_refused(name: str) -> None:
    raise ValueError(name)


def write_for_ever(descriptor: int) -> None:
    while True:
        os.write(descriptor, b"x" * 65536)


def strict(line: bytes):
    """JSON that refuses what a strict reader refuses, though not everything."""
    return json.loads(line.decode(), parse_constant=constant_refused)


@pytest.mark.parametrize("kind", sorted(UNREADABLE | {"nan", "infinity"}))
def test_a_frame_that_should_be_unreadable_is(start, kind):
    peer = start(behaviours={"t": kind})
    peer.post("tools/call", name="t", arguments={"text": "x"})
    line = peer.line()
    assert line
    with pytest.raises(ValueError):  # noqa: PT011 (UnicodeDecodeError or JSONDecodeError)
        strict(line)
    assert peer.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("wrong_id", 1_000_002),
        ("foreign_id", "a stranger"),
        ("string_id", "2"),
        ("float_id", 2.0),
        ("list_id", [2]),
        ("null_id", None),
    ],
)
def test_an_id_is_wrong_in_the_way_asked_for(start, kind, shown):
    frame = start(behaviours={"t": kind}).call("t", text="x")
    assert frame["id"] == shown
    assert type(frame["id"]) is type(shown)


@pytest.mark.parametrize("kind", sorted(set(BROKEN) - UNREADABLE - {"nan", "infinity"}))
def test_other_broken_frames_are_lines_and_the_server_lives_on(start, kind):
    peer = start(behaviours={"t": do(kind, then=do("rpc_error", code=-9))})
    peer.post("tools/call", name="t", arguments={"text": "x"})
    lines = []
    while not lines or b'"code": -9' not in lines[-1]:
        lines.append(peer.line())
    assert b"".join(lines[:-1]).strip()
    assert all(json.loads(line) for line in lines if line.strip())


def test_odd_frames_are_odd_in_the_way_asked_for(start):
    peer = start(behaviours={kind: kind for kind in BROKEN})

    def line(kind: str) -> bytes:
        peer.post("tools/call", name=kind, arguments={})
        return peer.line()

    assert b"\\ud800" in line("lone_surrogate")
    assert line("duplicate_keys").count(b'"result"') == 2
    assert isinstance(json.loads(line("batch")), list)
    assert json.loads(line("result_and_error")).keys() == {"jsonrpc", "id", "result", "error"}
    assert json.loads(line("no_id")).keys() == {"jsonrpc", "result"}
    assert line("duplicate_reply") == peer.line()
    assert line("carriage_return").endswith(b"\r")


def test_a_deep_frame_is_deep(start):
    peer = start(behaviours={"t": do("deep", depth=200_000)})
    peer.post("tools/call", name="t", arguments={})
    assert peer.line().count(b"[") == 200_001


def test_a_huge_line_is_one_line_of_the_size_asked_for(start):
    peer = start(behaviours={"t": do("huge_line", bytes=3_000_000)})
    peer.post("tools/call", name="t", arguments={})
    line = peer.line()
    assert len(line) + 1 == 3_000_000
    assert json.loads(line)["id"] == 2


def test_a_line_without_end_ends_with_its_input(start):
    peer = start(behaviours={"t": "no_newline"})
    peer.post("tools/call", name="t", arguments={})
    assert b"\n" not in peer.read(peer.stdout)
    peer.hang_up()
    while data := peer.read(peer.stdout):
        assert b"\n" not in data
    assert peer.process.wait(10) == 0


def test_noise_stands_before_the_first_frame_and_between_frames(start):
    peer = start(raw=True, at_start=[do("noise", text="hello", times=2)], noise="{log}")
    peer.post("initialize")
    assert [peer.line() for _ in range(3)] == [b"hello", b"hello", b"{log}"]
    assert peer.frame()["id"] == 1


def test_stderr_gets_as_many_bytes_as_asked_for(start):
    peer = start(behaviours={"t": do("stderr", bytes=30_000), "said": do("stderr", text="oh")})
    peer.post("tools/call", name="t", arguments={})
    got = 0
    while got < 30_000:
        got += len(peer.read(peer.stderr))
    assert got == 30_000
    assert "result" in peer.frame()
    peer.call("said")
    assert peer.read(peer.stderr) == b"oh\n"


def test_a_flood_has_as_many_notifications_as_asked_for(start):
    peer = start(behaviours={"t": do("flood", count=1234)})
    frames = [peer.call("t"), *(peer.frame() for _ in range(1234))]
    assert all(frame["method"] == "notifications/message" for frame in frames[:-1])
    assert "result" in frames[-1]


@pytest.mark.parametrize(
    ("step", "status"), [("die", 1), (do("die", code=4), 4), (do("die", signal="KILL"), -9)]
)
def test_death_comes_in_the_middle_of_a_call(start, step, status):
    peer = start(behaviours={"t": step})
    peer.post("tools/call", name="t", arguments={})
    assert peer.line() == b""
    assert peer.process.wait(10) == status


@pytest.mark.parametrize("method", ["server/discover", "initialize"])
def test_death_comes_with_the_probe_or_the_handshake(start, method):
    peer = start(raw=True, on={method: "die"})
    peer.post(method)
    assert peer.line() == b""


def test_the_probe_can_be_met_with_silence_or_an_odd_error(start):
    silent = start(raw=True, on={"server/discover": "never"})
    silent.post("server/discover")
    assert silent.ask("initialize")["id"] == 2
    odd = start(raw=True, on={"server/discover": do("rpc_error", code=0, message="?")})
    assert odd.modern("server/discover")["error"]["code"] == 0


def test_a_server_that_stopped_reading_leaves_its_pipe_full(start):
    peer = start(behaviours={"t": do("stop_reading", then="echo")})
    peer.call("t")
    os.set_blocking(peer.stdin, False)
    with pytest.raises(BlockingIOError):
        write_for_ever(peer.stdin)
    assert peer.process.poll() is None


def test_a_closed_output_does_not_mean_death(start):
    peer = start(behaviours={"t": "close_output"})
    peer.post("tools/call", name="t", arguments={})
    assert peer.line() == b""
    assert peer.process.poll() is None


def test_a_stubborn_server_answers_after_sigterm(start):
    peer = start(ignore_sigterm=True)
    peer.process.send_signal(signal.SIGTERM)
    assert peer.ask("ping")["result"] == {}
    assert peer.end() == 0


def test_unknown_blocks_and_fields_stand_beside_known_ones(start):
    peer = start(behaviours={"block": "unknown_block", "fields": "unknown_fields"})
    types = [block["type"] for block in peer.call("block", text="x")["result"]["content"]]
    assert types == ["text", "hologram"]
    result = peer.call("fields", text="x")["result"]
    assert result["vendorResult"] == {"kept": True}
    assert result["content"][0]["vendorBlock"] == [1]


def test_a_server_deaf_to_the_end_of_its_input_still_ends_by_itself(start):
    peer = start(life_seconds=1, ignore_eof=True)
    peer.hang_up()
    assert peer.process.wait(10) == -signal.SIGALRM


def test_any_bytes_at_all_can_be_sent(start):
    peer = start(behaviours={"t": do("raw", frame='<@ID@ "\udc80">', then="echo")})
    peer.post("tools/call", name="t", arguments={})
    assert peer.line() == b'<2 "\x80">'
    assert peer.frame()["id"] == 2
