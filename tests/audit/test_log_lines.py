"""Events as lines of the log: what is said, at which level, with which fields."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bascule.audit.events import ConnectionMoved
from bascule.audit.ledger import MemoryLedger
from bascule.audit.log_lines import LoggedLedger
from bascule.errors import OutcomeUnknown, ServerUnavailable, SessionRefused
from bascule.node.bridge.core import BridgeCore
from bascule.testing import FakeClock
from tests.loop.guest import said
from tests.node.fakes import World, text

JOB = {"enabled": True, "default_server_ids": ["fs"], "tool_denylist": ["delete"]}


class Logged:
    """A bridge over fakes whose events are said."""

    def __init__(self, caplog: pytest.LogCaptureFixture, **options: Any) -> None:
        caplog.set_level(logging.DEBUG, logger="bascule")
        self.clock = FakeClock()
        self.world = World(tasks={"job": JOB})
        self.kept = MemoryLedger()
        ledger = LoggedLedger(self.kept, **options)
        self.core = BridgeCore(
            self.world.core.snapshot, self.world.caller, ledger, clock=self.clock
        )
        self._caplog = caplog

    def lines(self, logger: str) -> list[tuple[str, str, dict[str, Any]]]:
        return [
            (record.levelname, record.getMessage(), getattr(record, "fields", {}))
            for record in self._caplog.records
            if record.name == f"bascule.{logger}"
        ]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Logged:
    return Logged(caplog)


@pytest.mark.requirement("observability:effective-servers")
async def test_a_session_is_said_with_its_effective_servers(logged: Logged):
    session = logged.core.session(task="job", caller="alice")
    [(level, words, fields)] = logged.lines("session")
    assert (level, words) == ("INFO", "session opened, effective servers: fs")
    assert list(fields["mcp_effective_servers"]) == ["fs"]
    assert (fields["task_id"], fields["caller"]) == ("job", "alice")
    assert fields["session_id"] == session.session_id
    assert "timestamp" not in fields
    assert len(logged.kept.events) == 1


async def test_a_session_with_nothing_effective_is_a_warning(logged: Logged):
    logged.core.session(task="job", server_ids=[])
    [(level, words, _)] = logged.lines("session")
    assert level == "WARNING"
    assert words.endswith("effective servers: none; MCP is enabled but no server is effective")


@pytest.mark.requirement("observability:log")
async def test_a_refused_session_is_a_warning_with_its_reason(logged: Logged):
    with pytest.raises(SessionRefused):
        logged.core.session(task="job", server_ids=["git"])
    [(level, words, fields)] = logged.lines("session")
    assert (level, fields["reason"], fields["server_id"]) == ("WARNING", "not_allowed", "git")
    assert words.startswith("session refused (not_allowed): the session asks for server 'git'")


@pytest.mark.requirement("observability:log")
@pytest.mark.parametrize(
    ("name", "answer", "level", "words"),
    [
        ("read", text("a"), "DEBUG", "call of fs/read succeeded in 0 ms"),
        ("read", text("a", isError=True), "INFO", "call of fs/read failed (mcp_tool_error)"),
        ("read", ServerUnavailable("down"), "INFO", "call of fs/read failed (mcp_unavailable)"),
        ("read", OutcomeUnknown("lost"), "WARNING", "call of fs/read unknown"),
        ("delete", text("a"), "WARNING", "call of fs/delete denied (mcp_policy_denied) in 0"),
    ],
)  # fmt: skip
async def test_a_call_is_said_at_a_level_that_fits_its_end(
    logged: Logged, name: str, answer: Any, level: str, words: str
):
    logged.world.caller.answers(name, answer)
    outcome = await logged.core.session(task="job", caller="alice").call(f"mcp__fs__{name}")
    [(said, line, fields)] = logged.lines("call")
    assert said == level
    assert line.startswith(words)
    assert (fields["server_id"], fields["tool_name"]) == ("fs", name)
    assert fields["request_id"] == outcome.request_id
    assert fields["status"] in {"ok", "failed", "denied", "unknown"}


@pytest.mark.requirement("observability:log")
async def test_a_call_by_a_name_that_says_no_server_is_said_by_that_name(logged: Logged):
    await logged.core.session(task="job").call("nothing")
    [(level, line, fields)] = logged.lines("call")
    assert line.startswith("call of nothing failed (mcp_invalid_arguments) in 0 ms")
    assert (level, fields["server_id"], fields["tool_name"]) == ("INFO", "", "nothing")
    assert fields["reason"] == "unknown_tool"


@pytest.mark.requirement("observability:log")
async def test_a_call_of_an_own_tool_is_said_to_be_one(logged: Logged):
    await logged.core.session(task="job").note_own("count", {}, said("four"), 0.002)
    [(level, line, fields)] = logged.lines("call")
    assert (level, line) == ("DEBUG", "call of own tool count succeeded in 2 ms")
    assert (fields["tool_name"], fields["reason"]) == ("count", "own_tool")


@pytest.mark.requirement("observability:log")
async def test_a_slow_call_is_a_warning(caplog: pytest.LogCaptureFixture):
    logged = Logged(caplog, slow_call_ms=250)

    async def slow(_: object) -> dict[str, Any]:
        await logged.clock.advance(0.25)
        return text("a")

    logged.world.caller.answers("read", slow)
    await logged.core.session(task="job").call("mcp__fs__read")
    [(level, words, fields)] = logged.lines("call")
    assert (level, words) == ("WARNING", "slow call of fs/read succeeded in 250 ms")
    assert fields["slow"] is True


@pytest.mark.requirement("observability:log")
@pytest.mark.parametrize(
    ("state", "level"),
    [("down", "WARNING"), ("parked", "WARNING"), ("reconnecting", "WARNING"),
     ("degraded", "WARNING"), ("connected", "INFO"), ("disconnected", "DEBUG")],
)  # fmt: skip
def test_trouble_with_a_connection_is_a_warning(logged: Logged, state: str, level: str):
    event = ConnectionMoved(
        timestamp=1.0,
        server_id="fs",
        old_state="connecting",
        state=state,
        reason="env_missing",
        last_error="no TOKEN",
    )
    logged.core.ledger.connection_moved(event)
    [(said, words, fields)] = logged.lines("connection")
    assert said == level
    assert words == f"server fs is {state}" + (": no TOKEN" if level == "WARNING" else "")
    assert (fields["server_id"], fields["reason"]) == ("fs", "env_missing")


async def test_nothing_is_formatted_for_a_level_that_is_off(
    logged: Logged, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.ERROR, logger="bascule")
    await logged.core.session(task="job").call("mcp__fs__read")
    assert not caplog.records
    assert len(logged.kept.events) == 3
