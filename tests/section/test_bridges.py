"""Which bridge a section crosses: its own, one that it is given, one of the host's event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Unpack

import pytest
from msgspec.structs import replace

from bascule import BlockingBridge, Bridge, MemoryLedger, NodeRules, Server, ServerRecord
from bascule.model.outcome import Failed, Outcome, failure
from bascule.model.task import TaskPolicy
from bascule.node.bridge.opening import Opening, SessionOptions, opening_of
from bascule.section import (
    McpConfigError,
    McpConnectionError,
    McpConnectionPool,
    McpSchemaError,
    McpServerConfig,
    McpTimeoutError,
    McpToolError,
    StdioTransport,
    ToolInvoked,
)
from bascule.testing import ScriptedServer, do, tool
from tests.children import children
from tests.node.up_process import serving, token
from tests.section.section_servers import (
    beside,
    bridge_threads,
    config,
    github,
    names,
    run,
    section_of,
    starts_of,
)

#: Never started: with a bridge of the host's the transport is not used.
UNUSED = StdioTransport(command="/no/such/program")


def record(server: ScriptedServer, server_id: str = "a", **fields: Any) -> ServerRecord:
    command, args = server.command
    return Server.stdio(server_id, command, *args, **fields)


def given(name: str = "a", **fields: Any) -> McpServerConfig:
    return McpServerConfig(name=name, transport=UNUSED, **fields)


@pytest.mark.requirement("section:shared-connections")
def test_sections_on_one_bridge_share_its_connections(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with Bridge.blocking([record(ScriptedServer(starts=starts))]) as bridge:
        one = section_of(given(), bridge=bridge)
        two = section_of(given(tool_prefix="again"), bridge=bridge)
        with one, two:
            assert run(one, "a_echo", {"text": "x"}).success
            assert run(two, "again_echo", {"text": "x"}).success
            assert len(bridge_threads()) == 1
        assert one.state == two.state == "disconnected"
        assert bridge.session(server_ids=["a"]).call("mcp__a__echo", {"text": "on"}).ok
    assert starts_of(starts) == 1


def test_on_a_bridge_that_is_given_its_records_rule() -> None:
    server = github()
    allowed = record(server, "github", allow=["create_*", "get_*", "delete_*"])
    narrowed = given("github", enabled_tools=("*_issue*",), disabled_tools=("create_issue",))
    with (
        Bridge.blocking([allowed]) as bridge,
        section_of(narrowed, bridge=bridge, caller="alice") as section,
    ):
        assert names(section) == ["github_get_issue"]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "no server of that id"),
        ([record(ScriptedServer(), enabled=False)], "enabled = false"),
        ([record(ScriptedServer(), allow=[])], "allows no tool"),
        ([record(ScriptedServer(at_start=[do("die", code=1)]))], "a: "),
    ],
    ids=["unknown", "disabled", "nothing allowed", "dead"],
)
def test_a_server_that_the_bridge_does_not_offer_is_named(
    records: list[ServerRecord], reason: str
) -> None:
    with (
        Bridge.blocking(records) as bridge,
        pytest.raises(McpConnectionError, match=reason) as error,
    ):
        section_of(given(), bridge=bridge).connect()
    assert (error.value.server_name, error.value.transport) == ("a", UNUSED)


def test_calls_stand_in_the_ledger_of_the_bridge_with_their_caller() -> None:
    ledger = MemoryLedger()
    with (
        Bridge.blocking([record(ScriptedServer())], ledger=ledger) as bridge,
        section_of(given(), bridge=bridge, caller="alice") as section,
    ):
        assert run(section, "a_echo", {"text": "x"}).success
        assert not run(section, "a_echo", {"text": 7}).success
        pool = section.context().resources.get(McpConnectionPool)
        assert pool is not None
        assert pool["a"].call("echo", {"text": "x"}).success
    calls = [(event.caller, event.tool_name, event.status) for event in ledger.calls()]
    assert calls == [("alice", "echo", "ok"), ("alice", "echo", "ok")]


def test_a_bridge_that_was_closed_is_a_lost_connection() -> None:
    bridge = Bridge.blocking([record(ScriptedServer())])
    section = section_of(given(), bridge=bridge)
    section.connect()
    bridge.close()
    assert section.state == "disconnected"
    with pytest.raises(McpConnectionError, match="closed"):
        run(section, "a_echo", {"text": "x"})
    with pytest.raises(McpConnectionError, match="closed"):
        section.connect()
    section.disconnect()


def test_a_session_that_is_refused_is_no_connection() -> None:
    class Tasked:
        """A bridge whose sessions all belong to a task."""

        def __init__(self, bridge: Bridge) -> None:
            self._bridge = bridge
            self.start, self.close = bridge.start, bridge.close

        def open_session(self, opening: Opening) -> Any:
            return self._bridge.open_session(replace(opening, task=TaskPolicy(enabled=True)))

    async def main() -> None:
        async with Bridge.open([record(ScriptedServer())]) as bridge:
            section = section_of(given(), bridge=Tasked(bridge))
            with pytest.raises(McpConnectionError, match="outside the servers"):
                async with section:
                    pass

    asyncio.run(main())


@pytest.mark.requirement("section:async")
async def test_async_with_connects_without_blocking_the_loop(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    listed = do("fixed", result={"tools": [tool("echo")]})
    held = ScriptedServer(on={"tools/list": do("gate", path=str(gate), then=listed)})
    section = section_of(config(held))
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        entering = tasks.create_task(section.__aenter__())
        while section.state != "connecting":
            await asyncio.to_thread(threading.Event().wait, 0.005)
        gate.touch()  # the loop is free to do this while the section connects
        assert await entering is section
    assert section.connected
    result = await beside(run, section, "a_echo", {"text": "x"})
    assert result.success
    await section.__aexit__(None, None, None)
    assert (section.state, bridge_threads()) == ("disconnected", [])


@pytest.mark.requirement("section:async")
async def test_async_with_crosses_a_bridge_of_the_same_loop(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    server = ScriptedServer(behaviours={"echo": "echo", "never": "never"}, starts=starts)
    async with (
        asyncio.timeout(20),
        Bridge.open([record(server)]) as bridge,
        section_of(given(timeout=0.3), bridge=bridge) as section,
    ):
        assert section.connected
        assert bridge_threads() == []
        results = await asyncio.gather(
            *(beside(run, section, "a_echo", {"text": str(n)}) for n in range(8))
        )
        assert [result.text for result in results] == [str(n) for n in range(8)]
        assert not (await beside(run, section, "a_never")).success
        with pytest.raises(McpConnectionError, match="own event loop"):
            run(section, "a_echo", {"text": "x"})
        assert (await beside(lambda: section.state)) == "connected"
    assert section.state == "disconnected"
    assert starts_of(starts) == 1


def test_a_loop_that_stands_still_is_not_waited_for() -> None:
    with asyncio.Runner() as runner:
        bridge = Bridge.open([record(ScriptedServer())])
        runner.run(bridge.start())
        section = section_of(given(), bridge=bridge)
        runner.run(section.__aenter__())
        with pytest.raises(
            McpConnectionError, match="the event loop of this bridge is not running"
        ):
            run(section, "a_echo", {"text": "x"})
        assert section.state == "disconnected"
        section.disconnect()
        runner.run(bridge.close())


async def test_an_async_bridge_without_async_with_is_refused() -> None:
    async with Bridge.open([record(ScriptedServer())]) as bridge:
        with pytest.raises(McpConfigError, match="async with"):
            section_of(given(), bridge=bridge).connect()


async def test_a_blocking_bridge_serves_async_with_too() -> None:
    with Bridge.blocking([record(ScriptedServer())]) as bridge:
        async with section_of(given(), bridge=bridge) as section:
            assert (await beside(run, section, "a_echo", {"text": "x"})).success
        assert not bridge.closed


async def test_an_entry_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    before = children()
    held = ScriptedServer(on={"tools/list": do("gate", path=str(tmp_path / "never"))})
    section = section_of(config(held))
    async with asyncio.timeout(10):
        entering = asyncio.create_task(section.__aenter__())
        while section.state != "connecting":
            await asyncio.to_thread(threading.Event().wait, 0.005)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    assert (section.state, bridge_threads()) == ("disconnected", [])
    assert children() <= before


@pytest.mark.requirement("section:blocking")
def test_a_call_blocks_its_thread_and_no_other(tmp_path: Path) -> None:
    """The first call is answered only once another thread has made the second."""
    gate = tmp_path / "gate"
    behaviours = {"wait": do("gate", path=str(gate)), "open": do("ledger", path=str(gate))}
    with (
        section_of(config(ScriptedServer(behaviours=behaviours))) as section,
        ThreadPoolExecutor(1) as thread,
    ):
        waiting = thread.submit(run, section, "a_wait", {"text": "through"})
        assert run(section, "a_open").success
        assert waiting.result(10).text == "through"


@pytest.mark.requirement("section:resources")
def test_the_pool_gives_handles_whose_calls_cross_the_bridge() -> None:
    with section_of(config(github(), "github", disabled_tools=("delete_repo",))) as section:
        pool = section.context().resources.get(McpConnectionPool)
        assert pool is not None
        hub = pool.get("github")
        assert hub is not None
        assert hub.tools == ("create_issue", "get_issue", "list_issues")
        assert hub.call("get_issue", {"text": "seven"}).text == "seven"
        event = section.session.events[-1]
        assert isinstance(event, ToolInvoked)
        assert (event.tool_name, event.mcp_server) == ("github_get_issue", "github")
        assert not hub.call("delete_repo").success
        assert not hub.call("create_issue", {"owner": "o"}).success
        assert pool.get("gitlab") is None
        with pytest.raises(KeyError):
            pool["gitlab"]
    with pytest.raises(McpConnectionError):
        hub.call("get_issue")
    assert section.context().resources.get(dict) is None


@pytest.mark.requirement("section:error:tool", "section:error:timeout")
def test_a_handle_can_raise_instead() -> None:
    behaviours = {
        "echo": "echo",
        "broken": do("rpc_error", code=-32000, message="the tool is broken"),
        "error": do("error", text="no"),
        "never": "never",
    }
    with section_of(config(ScriptedServer(behaviours=behaviours), timeout=0.3)) as section:
        pool = section.context().resources.get(McpConnectionPool)
        assert pool is not None
        assert pool["a"].require("echo", {"text": "x"})["content"][0]["text"] == "x"
        with pytest.raises(McpToolError, match="the tool is broken") as broken:
            pool["a"].require("broken")
        assert (broken.value.server_name, broken.value.tool_name) == ("a", "broken")
        assert broken.value.rpc_error == {"code": -32000, "message": "the tool is broken"}
        with pytest.raises(McpToolError) as failed:
            pool["a"].require("error")
        assert failed.value.rpc_error is None
        with pytest.raises(McpTimeoutError) as late:
            pool["a"].require("never")
        assert (late.value.server_name, late.value.timeout) == ("a", 0.3)


@pytest.mark.requirement("names:python-doors")
def test_names_lead_back_by_the_bridges_own_table(tmp_path: Path) -> None:
    long, odd = "t" * 80, "read.file"
    server = ScriptedServer(behaviours={long: "echo", odd: "echo", "plain_tool": "echo"})
    with section_of(config(server)) as section:
        assert "a_plain_tool" in names(section)
        for shown in section.tools():
            assert len(shown.name) <= 64
            assert shown.run({"text": shown.name}, context=section.context()).text == shown.name


@pytest.mark.requirement("section:error:schema", "names:python-doors")
def test_two_tools_with_one_name_are_refused_with_the_way_out() -> None:
    one = config(ScriptedServer(behaviours={"b_c": "echo"}), "a")
    two = config(ScriptedServer(behaviours={"c": "echo"}), "a_b")
    section = section_of(one, two)
    with pytest.raises(McpSchemaError, match="a/b_c; set tool_prefix") as error:
        section.connect()
    assert (error.value.server_name, error.value.tool_name) == ("a_b", "c")
    assert "'a_b_c'" in error.value.reason
    assert (section.state, bridge_threads()) == ("disconnected", [])
    renamed = config(ScriptedServer(behaviours={"c": "echo"}), "a_b", tool_prefix="other")
    with section_of(one, renamed) as section:
        assert names(section) == ["a_b_c", "other_c"]


@pytest.mark.requirement("hygiene:same-at-every-door")
def test_what_the_bridge_cleans_is_what_the_section_gives() -> None:
    key = "AKIA" + "Q3ZK7WXN5PLM2RTV"
    dirty = f"a key {key} and \u202ereversed\u202c and \x1b[31mred"
    behaviours = {"dirty": do("echo", text=dirty), "error": do("error", text=dirty)}
    server = ScriptedServer(behaviours=behaviours)
    with Bridge.blocking([record(server)]) as bridge:
        session = bridge.session(server_ids=["a"])
        with section_of(given(), bridge=bridge) as section:
            result = run(section, "a_dirty")
            outcome = session.call("mcp__a__dirty")
            assert outcome.ok
            assert key not in outcome.text
            assert result.content == outcome.content
            assert all(warning in result.message for warning in outcome.warnings)
            failed = session.call("mcp__a__error")
            assert failed.error is not None
            assert run(section, "a_error").message == failed.error.message


def test_the_rules_of_a_bridge_that_is_given_hold() -> None:
    rules = NodeRules(executables=("/nothing/*",))
    with (
        Bridge.blocking([record(ScriptedServer())], rules=rules) as bridge,
        pytest.raises(McpConnectionError, match="does not start"),
    ):
        section_of(given(), bridge=bridge).connect()


def test_a_section_without_servers_is_connected_and_empty() -> None:
    section = section_of()
    with pytest.raises(McpConnectionError) as error:
        section.tools()
    assert (error.value.server_name, error.value.transport) == ("", None)
    with section:
        assert (section.connected, section.tools()) == (True, ())


class Elsewhere:
    """A bridge that holds no connections itself and so does not know how they stand."""

    def __init__(self, bridge: Bridge, answers: list[Outcome]) -> None:
        self._bridge = bridge
        self._answers = answers
        self.start, self.close = bridge.start, bridge.close
        self.subscribe, self.reconnect = bridge.subscribe, bridge.reconnect

    def statuses(self) -> tuple[()]:
        return ()

    def session(self, **options: Unpack[SessionOptions]) -> Any:
        return self.open_session(opening_of(options))

    def open_session(self, opening: Opening) -> Any:
        session: Any = self._bridge.open_session(opening)
        carried = session.call

        async def call(*args: Any, **more: Any) -> Outcome:
            return self._answers.pop(0) if self._answers else await carried(*args, **more)

        session.call = call
        return session


UNAVAILABLE = Failed(error=failure("mcp_unavailable", "not now"), request_id="r", revision=1)


def test_a_bridge_that_cannot_say_how_a_server_stands_is_asked_again() -> None:
    away = Elsewhere(Bridge.open([record(ScriptedServer())]), [UNAVAILABLE] * 3)
    with BlockingBridge(away) as bridge, section_of(given(), bridge=bridge) as section:
        assert run(section, "a_echo", {"text": "x"}).text == "x"
        assert section.connected


def test_a_server_that_stays_away_behind_such_a_bridge_is_lost_after_three_retries() -> None:
    answers: list[Outcome] = [UNAVAILABLE] * 6
    away = Elsewhere(Bridge.open([record(ScriptedServer())]), answers)
    with BlockingBridge(away) as bridge, section_of(given(), bridge=bridge) as section:
        with pytest.raises(McpConnectionError, match="'a' is lost: not now"):
            run(section, "a_echo", {"text": "x"})
        assert (section.state, len(answers)) == ("disconnected", 2)


@pytest.mark.parametrize("async_bridge", [False, True], ids=["blocking", "async"])
async def test_a_section_crosses_a_bridge_that_is_connected_to_a_server(
    tmp_path: Path, async_bridge: bool
) -> None:
    """The registry rules: what its records and the token's task allow, narrowed here."""
    async with asyncio.timeout(25), serving(tmp_path) as (_, url):
        secret = await token(tmp_path, "--role", "client", "--task", "demo")
        narrowed = given("notes", disabled_tools=("search_*",))
        connect = Bridge.connect if async_bridge else Bridge.connect_blocking
        bridge = connect(url, token=secret)
        async with section_of(narrowed, bridge=bridge) as section:
            assert "notes_list_notes" in names(section)
            assert "notes_search_notes" not in names(section)
            assert section.connected
            listed = await beside(run, section, "notes_list_notes", {})
            assert listed.success, listed.message
            refused = await beside(run, section, "notes_read_note", {"name": 7})
            assert not refused.success
        unknown = section_of(given("nobody"), bridge=bridge)
        with pytest.raises(McpConnectionError) as error:
            async with unknown:
                pass
        assert error.value.server_name == "nobody"
        closing: Any = bridge.close()
        if async_bridge:
            await closing
