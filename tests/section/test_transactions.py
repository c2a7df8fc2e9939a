"""Calls as transactions of a session: kept on success, undone on failure, and of nobody else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bascule.model.call import Progress
from bascule.section import (
    InProcessEventBus,
    McpConnectionPool,
    McpIntegrationSection,
    Session,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from bascule.testing import ScriptedServer, do
from tests.section.section_servers import config, named, section_of

STEPS = ScriptedServer(
    behaviours={
        "works": do("progress", count=2),
        "fails": do("progress", count=2, then="error"),
        "hangs": do("progress", count=2, then="never"),
    }
)


@dataclass(frozen=True)
class Step:
    number: float


@dataclass(frozen=True)
class Note:
    text: str


def noting(session: Session) -> Any:
    def heard(progress: Progress) -> None:
        session.append(Step(progress.progress))

    return heard


def call(section: McpIntegrationSection, name: str) -> ToolResult[Any]:
    context = section.context(on_progress=noting(section.session))
    return named(section, name).run({}, context=context)


@pytest.mark.requirement("section:transaction:commit")
def test_a_successful_call_keeps_what_was_changed_in_it() -> None:
    with section_of(config(STEPS)) as section:
        section.session.append(Step(0))
        assert call(section, "a_works").success
        assert section.session.all(Step) == (Step(0), Step(1), Step(2))


@pytest.mark.requirement("section:transaction:restore")
@pytest.mark.parametrize("name", ["a_fails", "a_hangs"])
def test_a_failed_call_restores_the_state_from_before_it(name: str) -> None:
    with section_of(config(STEPS, timeout=0.4)) as section:
        section.session.append(Step(0))
        before = section.session.snapshot()
        assert not call(section, name).success
        assert section.session.all(Step) == (Step(0),)
        assert section.session.snapshot() == before
        assert isinstance(section.session.events[-1], ToolInvoked)  # a log is not rolled back


def test_subscribers_see_the_restored_state() -> None:
    seen: list[tuple[Step, ...]] = []
    bus = InProcessEventBus()
    session = Session(bus=bus)
    bus.subscribe(ToolInvoked, lambda _: seen.append(session.all(Step)))
    with section_of(config(STEPS), session=session) as section:
        call(section, "a_fails")
        call(section, "a_works")
    assert seen == [(), (Step(1), Step(2))]


def test_a_failing_call_undoes_nothing_that_others_did_meanwhile(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    fails_late = do("progress", count=1, then=do("gate", path=str(gate), then="error"))
    server = ScriptedServer(behaviours={"late": fails_late, "works": do("progress", count=1)})
    arrived = threading.Event()
    with section_of(config(server)) as section, ThreadPoolExecutor(1) as thread:
        session = section.session

        def first(progress: Progress) -> None:
            session.append(Note("of the call that fails"))
            arrived.set()
            del progress

        waiting = thread.submit(
            named(section, "a_late").run, {}, context=section.context(on_progress=first)
        )
        assert arrived.wait(10)
        session.append(Note("of another thread"))
        assert call(section, "a_works").success
        gate.touch()
        assert not waiting.result(10).success
        assert session.all(Note) == (Note("of another thread"),)
        assert session.all(Step) == (Step(1),)


def test_a_tool_of_ones_own_that_calls_a_server_is_one_transaction() -> None:
    def own(params: Mapping[str, Any] | None, /, *, context: ToolContext) -> ToolResult[None]:
        context.session.append(Note("about to ask"))
        pool = context.resources.get(McpConnectionPool)
        assert pool is not None
        assert params is not None
        asked = pool["a"].call(params["tool"], on_progress=noting(context.session))
        return ToolResult("asked", None, success=asked.success)

    tool: Tool[Any, None] = Tool(name="ask", description="Ask a server.", handler=own)
    with section_of(config(STEPS)) as section:
        session = section.session
        assert not tool.run({"tool": "fails"}, context=section.context()).success
        assert (session.all(Note), session.all(Step)) == ((), ())
        assert tool.run({"tool": "works"}, context=section.context()).success
        assert session.latest(Note) == Note("about to ask")
        assert len(session.all(Step)) == 2
        assert [(e.tool_name, e.source) for e in session.events] == [
            ("a_fails", "mcp"),
            ("ask", "native"),
            ("a_works", "mcp"),
            ("ask", "native"),
        ]


def test_an_exception_undoes_a_tool_of_ones_own() -> None:
    def broken(params: object, /, *, context: ToolContext) -> ToolResult[None]:
        del params
        context.session.append(Note("never"))
        raise KeyError

    session = Session()
    tool: Tool[Any, None] = Tool(name="broken", description="", handler=broken)
    with pytest.raises(KeyError):
        tool.run(None, context=ToolContext(session))
    assert session.all(Note) == ()


def test_snapshots_are_restored_whole() -> None:
    session = Session()
    assert session.latest(Note) is None
    session.append(Note("a"))
    before = session.snapshot()
    session.append(Note("b"))
    session.replace(Step, [Step(1), Step(2)])
    session.restore(before)
    assert (session.all(Note), session.all(Step)) == ((Note("a"),), ())
    session.append(Note("c"))
    assert before.slices == {Note: (Note("a"),)}


def test_a_transaction_sees_its_own_changes_and_no_one_else_does() -> None:
    session, other = Session(), Session()
    with session.transaction():
        session.append(Note("inside"))
        other.append(Note("elsewhere"))
        assert session.all(Note) == (Note("inside"),)
        assert session.snapshot().slices == {Note: (Note("inside"),)}
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(session.all, Note).result(5) == ()
        with other.transaction(), session.transaction() as inner:
            session.append(Note("deeper"))
            assert len(session.all(Note)) == 2
            inner.rollback()
        assert session.all(Note) == (Note("inside"),)
        session.restore(session.snapshot())
    assert session.all(Note) == (Note("inside"),)
    assert other.all(Note) == (Note("elsewhere"),)


def test_what_is_restored_in_a_transaction_is_part_of_it() -> None:
    session = Session()
    session.append(Note("before"))
    with session.transaction() as outer:
        session.append(Note("in the call"))
        session.append(Step(1))
        with session.transaction():
            inside = session.snapshot()
            session.append(Note("in a call within"))
            session.replace(Step, [])
            session.restore(inside)
            assert session.all(Note) == (Note("before"), Note("in the call"))
            assert session.all(Step) == (Step(1),)
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(session.all, Note).result(5) == (Note("before"),)
        outer.rollback()
    assert (session.all(Note), session.all(Step)) == ((Note("before"),), ())


def test_a_restored_snapshot_is_committed_with_its_transaction() -> None:
    session = Session()
    empty = session.snapshot()
    session.append(Note("before"))
    with session.transaction():
        session.restore(empty)
        session.append(Step(1))
    assert (session.all(Note), session.all(Step)) == ((), (Step(1),))


def test_a_subscriber_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    bus = InProcessEventBus()

    def fail(event: str) -> None:
        raise ValueError(event)

    bus.subscribe(str, fail)
    end = bus.subscribe(str, heard.append)
    bus.subscribe(int, lambda _: heard.append("wrong type"))
    with caplog.at_level(logging.WARNING, "bascule.section"):
        Session(bus=bus).publish("event")
    end()
    bus.publish("later")
    assert heard == ["event"]
    assert "a subscriber of str failed" in caplog.text


def test_only_the_last_events_are_kept() -> None:
    session = Session(kept_events=2)
    for number in range(5):
        session.publish(number)
    assert session.events == (3, 4)


def test_tools_and_results_can_be_made_with_their_types() -> None:
    result = ToolResult[str]("done", "x")
    tool = Tool[Any, str](
        name="own", description="One's own.", handler=lambda params, /, *, context: result
    )
    assert tool.run(None, context=ToolContext(Session())) is result
