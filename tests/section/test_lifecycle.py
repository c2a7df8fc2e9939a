"""The life of a section's connections: every arrow of its state diagram, and nothing left over."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bascule.section import (
    McpConnectionError,
    McpError,
    McpServerConfig,
    StdioTransport,
    StreamableHttpTransport,
    ToolInvoked,
)
from bascule.testing import ScriptedServer, do, tool
from tests.children import children
from tests.scale import SOAK
from tests.section.section_servers import (
    bridge_threads,
    config,
    names,
    run,
    section_of,
    starts_of,
)
from tests.waits import blocked_until

NOWHERE = McpServerConfig(
    name="nowhere", transport=StdioTransport(command="/no/such/program"), timeout=5
)
NOBODY = McpServerConfig(
    name="nobody", transport=StreamableHttpTransport(url="http://127.0.0.1:9/mcp"), timeout=5
)
#: Each attempt asks a fresh process for the new generation of the protocol, then for the old.
DIALECTS = 2
DYING = {"echo": "echo", "die": do("die", signal="KILL")}


def held_at_the_list(gate: Path, **more: Any) -> ScriptedServer:
    """A server that lists its tools once the gate is open."""
    listed = do("fixed", result={"tools": [tool("echo")]})
    return ScriptedServer(on={"tools/list": do("gate", path=str(gate), then=listed)}, **more)


@pytest.mark.requirement("section:deferred-connect", "section:lazy")
def test_nothing_is_connected_before_it_is_asked_for(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    section = section_of(config(ScriptedServer(starts=starts)))
    assert section.state == "disconnected"
    assert not section.connected
    assert (starts.exists(), bridge_threads()) == (False, [])


@pytest.mark.requirement("section:tools-before-connect")
def test_tools_before_connect_raises() -> None:
    section = section_of(config(name="github"))
    with pytest.raises(McpConnectionError, match=r"connect\(\) first") as error:
        section.tools()
    assert error.value.server_name == "github"
    with pytest.raises(McpConnectionError):
        section.render()
    with section:
        pass
    with pytest.raises(McpConnectionError):
        section.tools()


@pytest.mark.requirement("section:connect-on-init")
def test_connect_on_init_connects_in_the_constructor() -> None:
    section = section_of(config(), connect_on_init=True)
    assert section.connected
    section.disconnect()
    with pytest.raises(McpConnectionError):
        section_of(NOWHERE, connect_on_init=True)
    assert bridge_threads() == []


@pytest.mark.requirement("section:state:connecting")
def test_connect_leads_through_connecting_to_connected(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    section = section_of(config(held_at_the_list(gate)))
    with ThreadPoolExecutor(1) as thread:
        connecting = thread.submit(section.connect)
        blocked_until(lambda: section.state == "connecting")
        assert not section.connected
        gate.touch()
        connecting.result(10)
    assert section.state == "connected"
    assert section.connected
    section.disconnect()


@pytest.mark.requirement("section:state:disconnect", "section:context-manager")
def test_disconnect_leads_to_disconnected_and_leaves_nothing(tmp_path: Path) -> None:
    before = children()
    stubborn = ScriptedServer(ignore_sigterm=True, ignore_eof=True)
    with section_of(config(stubborn), config(name="b")) as section:
        assert len(children() - before) >= 2
        assert len(bridge_threads()) == 1
    assert section.state == "disconnected"
    assert children() <= before
    assert bridge_threads() == []
    section.disconnect()
    assert section.state == "disconnected"


def test_an_exception_in_the_block_disconnects_too() -> None:
    section = section_of(config())
    with pytest.raises(KeyError), section:
        raise KeyError
    assert (section.state, bridge_threads()) == ("disconnected", [])


@pytest.mark.requirement("section:idempotent-connect")
def test_connect_inside_the_block_does_nothing_twice(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with section_of(config(ScriptedServer(starts=starts))) as section:
        section.connect()
        section.connect()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: section.connect(), range(8)))
        assert run(section, "a_echo", {"text": "x"}).success
    assert starts_of(starts) == 1


def test_many_threads_that_connect_at_once_cause_one_connection(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    section = section_of(config(ScriptedServer(starts=starts)))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: section.connect(), range(4)))
    assert section.connected
    section.disconnect()
    assert starts_of(starts) == 1


@pytest.mark.requirement("section:reload-by-reconnect")
def test_after_a_new_connect_the_tools_are_those_of_the_server_now(tmp_path: Path) -> None:
    script = tmp_path / "script"
    server = ScriptedServer(behaviours={"old": "echo"}).saved_to(script)
    section = section_of(config(server))
    section.connect()
    assert names(section) == ["a_old"]
    ScriptedServer(behaviours={"new": "echo"}).saved_to(script)
    assert names(section) == ["a_old"]
    section.disconnect()
    section.connect()
    assert names(section) == ["a_new"]
    assert run(section, "a_new", {"text": "x"}).success
    section.disconnect()


@pytest.mark.requirement(
    "section:state:connect-failed", "section:failure:refused", "section:error:connection"
)
@pytest.mark.parametrize("broken", [NOWHERE, NOBODY], ids=["no program", "no listener"])
def test_one_server_that_cannot_be_reached_leaves_nothing_of_the_others(
    broken: McpServerConfig, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    before, files = children(), psutil.Process().num_fds()
    section = section_of(config(ScriptedServer(starts=starts), "good"), broken)
    with pytest.raises(McpConnectionError, match=broken.name) as error:
        section.connect()
    assert error.value.server_name == broken.name
    assert error.value.transport is broken.transport
    assert isinstance(error.value, McpError)
    assert section.state == "disconnected"
    assert starts_of(starts) == 1  # it was there, and is gone
    assert children() <= before
    assert (bridge_threads(), psutil.Process().num_fds()) == ([], files)


def test_a_server_that_ends_at_once_is_tried_three_times(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    server = ScriptedServer(at_start=[do("die", code=3)], starts=starts)
    with pytest.raises(McpConnectionError):
        section_of(config(server)).connect()
    assert starts_of(starts) == 3 * DIALECTS


def test_a_server_that_comes_up_late_is_connected(tmp_path: Path) -> None:
    once = do("once", path=str(tmp_path / "once"), first=do("die", code=3), then=do("noise"))
    with section_of(config(ScriptedServer(at_start=[once]))) as section:
        assert section.connected


@pytest.mark.requirement("section:connected")
def test_connected_is_true_only_when_all_servers_are(tmp_path: Path) -> None:
    script = tmp_path / "script"
    server = ScriptedServer(behaviours=DYING)
    with section_of(config(server.saved_to(script)), config(name="b")) as section:
        assert section.connected
        hold(server, script, tmp_path / "gate")
        run(section, "a_die")
        assert not section.connected
        assert run(section, "b_echo", {"text": "still"}).text == "still"


def hold(server: ScriptedServer, script: Path, gate: Path) -> None:
    """Have the next start of a server wait for a gate before it answers anything."""
    methods = {name: do("gate", path=str(gate)) for name in ("server/discover", "initialize")}
    replace(server, on=methods).saved_to(script)


@pytest.mark.requirement("section:state:reconnecting", "section:failure:lost")
def test_a_lost_connection_leads_to_reconnecting_and_back(tmp_path: Path) -> None:
    script, starts, gate = tmp_path / "script", tmp_path / "starts", tmp_path / "gate"
    server = ScriptedServer(behaviours=DYING, starts=starts)
    with section_of(config(server.saved_to(script), timeout=5)) as section:
        held = do("gate", path=str(gate), then=do("die", code=1))
        replace(server, on={"server/discover": held, "initialize": held}).saved_to(script)
        result = run(section, "a_die")
        assert not result.success  # it may or may not have been carried out: never sent again
        assert result.error is not None
        assert result.error.code == "mcp_outcome_unknown"
        blocked_until(lambda: starts_of(starts) == 2)
        assert section.state == "reconnecting"
        assert section.tools()
        server.saved_to(script)
        gate.touch()  # this process ends, the next one is well
        assert run(section, "a_echo", {"text": "again"}).text == "again"
        assert section.state == "connected"
    assert starts_of(starts) == 3


@pytest.mark.requirement(
    "section:state:retries-exhausted", "section:failure:crash", "section:failure:lost"
)
def test_exhausted_retries_lead_to_disconnected_with_nothing_left(tmp_path: Path) -> None:
    script, starts = tmp_path / "script", tmp_path / "starts"
    before = children()
    server = ScriptedServer(behaviours=DYING, starts=starts)
    section = section_of(config(server.saved_to(script), timeout=20), config(name="b"))
    section.connect()
    replace(server, at_start=[do("die", code=1)]).saved_to(script)
    run(section, "a_die")
    with pytest.raises(McpConnectionError, match="'a' is lost") as error:
        run(section, "a_echo", {"text": "x"})
    assert error.value.server_name == "a"
    assert isinstance(error.value.transport, StdioTransport)
    assert starts_of(starts) == 1 + 3 * DIALECTS
    assert section.state == "disconnected"
    assert children() <= before
    assert bridge_threads() == []
    event = section.session.events[-1]
    assert isinstance(event, ToolInvoked)
    assert (event.tool_name, event.result.success) == ("a_echo", False)
    server.saved_to(script)
    with section:
        assert run(section, "a_echo", {"text": "well"}).text == "well"


def test_a_section_that_nobody_calls_notices_the_loss_too(tmp_path: Path) -> None:
    script, pids = tmp_path / "script", tmp_path / "starts"
    server = ScriptedServer(starts=pids)
    section = section_of(config(server.saved_to(script)))
    before = children()
    with section:
        replace(server, at_start=[do("die", code=1)]).saved_to(script)
        for pid in children() - before:
            with suppress(ProcessLookupError):  # its warden took it along
                os.kill(pid, 9)
        blocked_until(lambda: section.state == "disconnected")
        section.disconnect()


def test_disconnect_ends_a_connect_under_way(tmp_path: Path) -> None:
    section = section_of(config(held_at_the_list(tmp_path / "never")))
    with ThreadPoolExecutor(1) as thread:
        connecting = thread.submit(section.connect)
        blocked_until(lambda: section.state == "connecting")
        section.disconnect()
        assert isinstance(connecting.exception(10), McpConnectionError)
    assert (section.state, bridge_threads()) == ("disconnected", [])


def test_disconnect_ends_a_call_under_way() -> None:
    server = ScriptedServer(behaviours={"wait": do("progress")})
    section = section_of(config(server))
    section.connect()
    arrived = threading.Event()
    context = section.context(on_progress=lambda _: arrived.set())
    (waiting_tool,) = section.tools()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(waiting_tool.run, {}, context=context)
        assert arrived.wait(10)
        section.disconnect()
        assert not waiting.result(10).success
    with pytest.raises(McpConnectionError):
        waiting_tool.run({}, context=section.context())


def test_a_tool_of_an_earlier_connect_works_after_the_next() -> None:
    section = section_of(config())
    with section:
        (echo,) = section.tools()
    with section:
        assert echo.run({"text": "x"}, context=section.context()).text == "x"


@pytest.mark.timeout(900)
def test_connecting_and_disconnecting_leaves_no_process_thread_or_descriptor() -> None:
    section = section_of(config())
    with section:  # what is loaded once is loaded now
        run(section, "a_echo", {"text": "x"})
    before = (children(), threading.active_count(), psutil.Process().num_fds())
    for _ in range(1000 if SOAK else 30):
        with section:
            assert run(section, "a_echo", {"text": "x"}).success
    assert (children(), threading.active_count(), psutil.Process().num_fds()) == before


def test_a_forgotten_section_ends_with_its_program(tmp_path: Path) -> None:
    """The interpreter ends although nobody disconnected, and takes the server along."""
    starts = tmp_path / "starts"
    command, args = ScriptedServer(starts=starts).command
    program = (
        "import sys\n"
        "from bascule.section import *\n"
        "transport = StdioTransport(command=sys.argv[1], args=tuple(sys.argv[2:]))\n"
        "servers = [McpServerConfig(name='a', transport=transport)]\n"
        "McpIntegrationSection(servers=servers, session=Session(), connect_on_init=True)\n"
    )
    with psutil.Popen([sys.executable, "-c", program, command, *args]) as process:
        assert process.wait(20) == 0
    assert starts_of(starts) == 1
    marked = [p for p in psutil.process_iter(["cmdline"]) if str(starts) in str(p.info["cmdline"])]
    assert psutil.wait_procs(marked, timeout=5)[1] == []
