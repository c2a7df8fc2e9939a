"""The figures of the last two minutes: what each second had, by server and tool."""

from __future__ import annotations

import asyncio

import pytest

from bascule.audit import figures
from bascule.audit.figures import WINDOW_SECONDS, RecentFigures, quantile
from bascule.audit.metrics import LATENCY_BOUNDS, OTHER, Metrics
from bascule.testing.clock import FakeClock
from bascule.wire.api.overview import Figures
from tests.waits import Heard


def called(metrics: Metrics, tool: str = "read", code: str | None = None, ms: float = 3.0) -> None:
    metrics.tool("fs", tool).observe(code, ms, 10)


def recent(metrics: Metrics, running: int = 0) -> RecentFigures:
    return RecentFigures(metrics, clock=FakeClock(), running=lambda: running)


@pytest.mark.requirement("admin:overview:figures")
async def test_every_second_has_what_was_counted_in_it():
    metrics, clock, heard = Metrics(), FakeClock(), Heard[Figures]()
    found = RecentFigures(metrics, clock=clock, running=lambda: 2)
    found.subscribe(heard.hear)
    running = asyncio.ensure_future(found.run())
    called(metrics)
    called(metrics)
    await clock.advance(1)
    called(metrics)
    await clock.advance(2)
    running.cancel()
    assert [one.calls for one in found.seconds()] == [2, 1, 0]
    assert found.seconds()[0].running == 2
    assert found.seconds()[0].at == "2027-01-15T08:00:01.000Z"
    assert tuple(heard) == found.seconds()


def test_what_was_counted_before_is_no_news():
    metrics = Metrics()
    called(metrics)
    found = recent(metrics)
    found.look()
    assert found.seconds()[0].calls == 0
    assert found.servers() == ()


@pytest.mark.requirement("admin:overview:figures")
def test_denials_failures_and_refused_names_are_counted_apart():
    metrics = Metrics()
    found = recent(metrics)
    called(metrics)
    called(metrics, code="mcp_tool_error")
    called(metrics, code="mcp_policy_denied")
    called(metrics, code="mcp_approval_denied")
    metrics.refused("fs", "delete", "mcp_policy_denied")
    found.look()
    [second] = found.seconds()
    assert (second.calls, second.errors, second.denials) == (5, 1, 3)


@pytest.mark.requirement("admin:overview:figures")
def test_servers_and_tools_are_added_up_over_the_window_the_busiest_first():
    metrics = Metrics()
    found = recent(metrics)
    for _ in range(3):
        called(metrics, "read")
        metrics.tool("git", "log").observe(None, 40.0, 1)
        found.look()
    called(metrics, "write", "mcp_timeout", 400.0)
    found.look()
    fs, git = found.servers()
    assert (fs.server_id, fs.calls, fs.errors) == ("fs", 4, 1)
    assert [(tool.tool_name, tool.calls, tool.errors) for tool in fs.tools] == [
        ("read", 3, 0),
        ("write", 1, 1),
    ]
    assert (git.server_id, git.calls) == ("git", 3)
    assert git.p50_ms is not None
    assert 25 < git.p50_ms <= 50


def test_what_is_older_than_the_window_is_forgotten():
    metrics = Metrics()
    found = recent(metrics)
    called(metrics)
    found.look()
    for _ in range(WINDOW_SECONDS):
        found.look()
    assert len(found.seconds()) == WINDOW_SECONDS
    assert found.servers() == ()


def test_of_very_many_tools_in_one_second_the_others_share_their_figures(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(figures, "MOST_TOOLS", 2)
    metrics = Metrics()
    found = recent(metrics)
    for number in range(4):
        for _ in range(number + 1):
            called(metrics, f"t{number}")
    metrics.refused(None, None, "mcp_invalid_arguments")
    found.look()
    by_name = {(s.server_id, t.tool_name): t.calls for s in found.servers() for t in s.tools}
    assert by_name == {("fs", "t3"): 4, ("fs", "t2"): 3, (OTHER, OTHER): 4}
    assert found.seconds()[0].calls == 11


def test_a_listener_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture):
    def fail(_: Figures) -> None:
        raise ValueError("not today")

    heard = Heard[Figures]()
    found = recent(Metrics())
    found.subscribe(fail)
    found.subscribe(heard.hear)
    found.look()
    assert tuple(heard) == found.seconds()
    assert "a listener failed" in caplog.text


def test_nobody_is_told_after_they_left():
    heard = Heard[Figures]()
    found = recent(Metrics())
    leave = found.subscribe(heard.hear)
    leave()
    found.look()
    assert heard == []


@pytest.mark.parametrize(
    ("latency", "share", "expected"),
    [
        ([], 0.5, None),
        ([(0, 10)], 0.5, 0.25),
        ([(4, 4), (7, 4)], 0.5, 10.0),
        ([(4, 4), (7, 4)], 0.75, 75.0),
        ([(len(LATENCY_BOUNDS), 3)], 0.5, LATENCY_BOUNDS[-1]),
    ],
)
def test_a_latency_is_estimated_inside_its_bucket(
    latency: list[tuple[int, int]], share: float, expected: float | None
):
    assert quantile(latency, share) == expected
