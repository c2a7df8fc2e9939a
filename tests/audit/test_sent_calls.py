"""Calls of nodes elsewhere, counted as their rows are taken in."""

from __future__ import annotations

import msgspec
import pytest

from bascule.audit.chain import Row
from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import OWN_TOOL, CallEvent, DenialsCounted, Event
from bascule.audit.figures import RecentFigures
from bascule.audit.metrics import MAX_GUESSED, Metrics
from bascule.audit.sent_calls import SentCalls
from bascule.testing.clock import FakeClock
from tests.audit.calls import Ended, Leaving

NOW = 1_000.0
CALL = msgspec.structs.replace(Ended().event(), timestamp=NOW - 1)

pytestmark = pytest.mark.requirement("admin:overview:nodes")


def rows(*events: Event | bytes) -> list[Row]:
    lines = [one if isinstance(one, bytes) else event_bytes(one) for one in events]
    return [Row(number, 1, number, line, bytes(32)) for number, line in enumerate(lines, 1)]


def counted(*events: Event | bytes) -> RecentFigures:
    """Look at the figures of a process that counted one call itself and then took rows in."""
    sent, own = SentCalls(fresh_seconds=60), Metrics()
    figures = RecentFigures(own, sent.metrics, clock=FakeClock())
    own.tool("fs", "read").observe(None, 1.0, 1)
    sent.note(rows(*events), NOW)
    figures.look()
    return figures


def failed(code: str, **more: object) -> CallEvent:
    status = "denied" if code.endswith("denied") else "failed"
    return msgspec.structs.replace(CALL, code=code, status=status, **more)


def test_calls_that_nodes_tell_of_are_added_to_the_own():
    figures = counted(Leaving(1).intent(), CALL, failed("mcp_timeout", tool_name="write"))
    [second] = figures.seconds()
    assert (second.calls, second.errors, second.denials, second.running) == (3, 1, 0, None)
    [fs] = figures.servers()
    assert [(one.tool_name, one.calls) for one in fs.tools] == [("read", 2), ("write", 1)]


def test_denials_and_callers_own_tools_are_counted_as_such():
    many = DenialsCounted(
        timestamp=NOW, token_id="a", task_id=None, caller=None, count=40, since=NOW - 60
    )
    own = msgspec.structs.replace(CALL, server_id="", tool_name="mine", reason=OWN_TOOL)
    figures = counted(failed("mcp_policy_denied"), many, own)
    [second] = figures.seconds()
    assert (second.calls, second.errors, second.denials) == (1 + 1 + 40 + 1, 0, 41)
    assert {one.server_id for one in figures.servers()} == {"fs", "_own", "_other"}


def test_what_happened_long_ago_is_no_news():
    old = msgspec.structs.replace(CALL, timestamp=NOW - 61)
    assert counted(old).seconds()[0].calls == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"call","timestamp":1000,"request_id":"r1"}',
        b'{"event":"call","timestamp":"soon"}',
        b'{"event":"call",',
        event_bytes(CALL).replace(b'"status":"ok"', b'"status":"splendid"'),
    ],
)
def test_a_row_that_another_version_wrote_is_left_out_and_the_others_are_counted(line: bytes):
    assert counted(line, CALL).seconds()[0].calls == 2


def test_names_that_callers_invent_take_no_more_room_than_their_bound():
    invented = [failed("mcp_policy_denied", tool_name=f"t{n}") for n in range(MAX_GUESSED + 50)]
    sent = SentCalls(fresh_seconds=60)
    sent.note(rows(*invented), NOW)
    found = dict(sent.metrics.tools())
    assert sum(stats.calls for stats in found.values()) == MAX_GUESSED + 50
    assert len(found) <= MAX_GUESSED + 2


def test_each_call_is_told_until_nobody_wants_to_know(caplog: pytest.LogCaptureFixture):
    sent, heard = SentCalls(fresh_seconds=60), list[CallEvent]()

    def breaks(_: CallEvent) -> None:
        raise RuntimeError("not today")

    sent.subscribe(breaks)
    ended = sent.subscribe(heard.append)
    sent.note(rows(CALL), NOW)
    ended()
    sent.note(rows(CALL), NOW)
    assert heard == [CALL]
    assert "a listener failed" in caplog.text
