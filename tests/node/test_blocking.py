"""``Bridge.blocking``: the bridge for programs without async."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from bascule import BlockingBridge, Bridge, InvalidRecord, Server, ServerRecord, SessionRefused
from bascule.demo import RECORDS
from bascule.model.call import Progress
from bascule.model.task import TaskPolicy
from bascule.testing import ScriptedServer, do
from tests.children import children

ECHO = "mcp__a__echo"


def record(server: ScriptedServer | None = None, server_id: str = "a") -> ServerRecord:
    command, args = (server or ScriptedServer()).command
    return Server.stdio(server_id, command, *args)


@pytest.fixture
def bridge() -> Iterator[BlockingBridge]:
    with Bridge.blocking([record()]) as bridge:
        yield bridge


def bridge_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bascule-bridge"]


@pytest.mark.requirement("bridge:blocking")
def test_a_program_without_async_lists_and_calls(bridge: BlockingBridge) -> None:
    with bridge.session(server_ids=["a"], caller="alice") as session:
        assert session.tools().names == (ECHO,)
        outcome = session.call(ECHO, {"text": "hello"}, timeout=5)
        assert (outcome.ok, outcome.text) == (True, "hello")
        assert session.explain(ECHO).allowed


@pytest.mark.requirement("bridge:blocking")
def test_a_cut_output_is_read_through_its_handle() -> None:
    server = ScriptedServer(behaviours={"big": do("big", bytes=5000)})
    with Bridge.blocking([record(server)]) as bridge:
        session = bridge.session(server_ids=["a"])
        cut = session.call("mcp__a__big", max_output_bytes=1000)
        assert cut.truncated is not None
        assert cut.truncated.handle is not None
        assert session.read_output(cut.truncated.handle, 4990) == "x" * 10


def test_it_takes_a_directory_and_the_options_of_open() -> None:
    with Bridge.blocking(RECORDS, environ={"PATH": str(Path(sys.executable).parent)}) as bridge:
        outcome = bridge.session(server_ids=["notes"]).call("mcp__notes__list_notes")
        assert outcome.ok


def test_what_is_wrong_is_raised_where_it_was_asked(bridge: BlockingBridge) -> None:
    with pytest.raises(InvalidRecord):
        Bridge.blocking([record(), record()])
    with pytest.raises(SessionRefused):
        bridge.session(task=TaskPolicy(enabled=True, allowed_server_ids=()), server_ids=["a"])
    with pytest.raises(KeyError):
        bridge.session(server_ids=["a"]).read_output("no-such-handle")
    assert bridge.session(server_ids=["a"]).call("mcp__a__nothing").error is not None


@pytest.mark.requirement("bridge:blocking")
def test_closing_ends_every_process_and_the_thread(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    server = ScriptedServer(starts=starts, ignore_sigterm=True, ignore_eof=True)
    before = children()
    with Bridge.blocking([record(server)]) as bridge:
        assert bridge.session(server_ids=["a"]).call(ECHO, {"text": "x"}).ok
        assert len(bridge_threads()) == 1
    assert starts.read_text(encoding="utf-8").count("\n") == 1
    assert bridge.closed
    assert bridge_threads() == []
    assert children() <= before


def test_after_closing_the_error_says_so(bridge: BlockingBridge) -> None:
    session, other = bridge.session(server_ids=["a"]), bridge.session(server_ids=["a"])
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="this session is closed"):
        session.tools()
    bridge.close()
    bridge.close()
    with pytest.raises(RuntimeError, match="this bridge is closed"):
        other.call(ECHO)
    with pytest.raises(RuntimeError, match="this bridge is closed"):
        bridge.session(server_ids=["a"])
    other.close()


def test_a_bridge_that_was_never_used_has_no_thread() -> None:
    with Bridge.blocking([record()]):
        assert bridge_threads() == []


def test_an_exception_in_the_block_closes_it_too() -> None:
    bridge = Bridge.blocking([record()])
    with pytest.raises(KeyError), bridge, bridge.session(server_ids=["a"]) as session:
        session.read_output("no-such-handle")
    assert bridge.closed
    assert bridge_threads() == []


def test_many_threads_share_one_session(bridge: BlockingBridge) -> None:
    session = bridge.session(server_ids=["a"])
    texts = [str(number) for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda text: session.call(ECHO, {"text": text}), texts))
    assert [outcome.text for outcome in outcomes] == texts


def test_calls_of_two_threads_really_overlap(tmp_path: Path) -> None:
    """The first call is answered only once the second one has been made."""
    gate = tmp_path / "gate"
    behaviours = {"wait": do("gate", path=str(gate)), "open": do("ledger", path=str(gate))}
    server = ScriptedServer(behaviours=behaviours)
    with Bridge.blocking([record(server)]) as bridge, ThreadPoolExecutor(1) as thread:
        session = bridge.session(server_ids=["a"])
        waiting = thread.submit(session.call, "mcp__a__wait", {"text": "through"})
        assert session.call("mcp__a__open").ok
        assert waiting.result(10).text == "through"


async def test_it_works_inside_the_thread_of_a_running_loop(bridge: BlockingBridge) -> None:
    assert asyncio.get_running_loop().is_running()
    assert bridge.session(server_ids=["a"]).call(ECHO, {"text": "in"}).text == "in"


def test_closing_while_a_call_is_under_way_ends_the_call() -> None:
    server = ScriptedServer(behaviours={"wait": do("progress")})
    arrived = threading.Event()
    bridge = Bridge.blocking([record(server)])
    session = bridge.session(server_ids=["a"])
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(
            session.call, "mcp__a__wait", timeout=20, on_progress=lambda _: arrived.set()
        )
        assert arrived.wait(10)
        bridge.close()
        failure = waiting.exception(5)
        assert isinstance(failure, RuntimeError) or waiting.result().error is not None


def test_a_callback_that_would_wait_for_itself_is_refused(bridge: BlockingBridge) -> None:
    server = ScriptedServer(behaviours={"work": do("progress", count=1)})
    refusals: list[str] = []
    with Bridge.blocking([record(server)]) as other:
        session = other.session(server_ids=["a"])

        def again(progress: Progress) -> None:
            del progress
            try:
                session.call("mcp__a__work")
            except RuntimeError as error:
                refusals.append(str(error))

        assert session.call("mcp__a__work", on_progress=again).ok
    assert len(refusals) == 1
    assert "its own bridge" in refusals[0]


def test_a_forgotten_bridge_ends_when_it_is_collected() -> None:
    bridge = Bridge.blocking([record()])
    bridge.session(server_ids=["a"]).tools()
    [thread] = bridge_threads()
    del bridge
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


PROGRAM = """
import signal, sys, threading
from bascule import Bridge, Server
command, args = sys.argv[1], sys.argv[2:]
bridge = Bridge.blocking([Server.stdio("a", command, *args)])
session = bridge.session(server_ids=["a"])
seen = []
def interrupt(progress):
    if not seen:
        seen.append(progress)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
try:
    session.call("mcp__a__wait", timeout=20, on_progress=interrupt)
except KeyboardInterrupt:
    print("interrupted", session.call("mcp__a__echo", {"text": "and alive"}).text)
END
"""


@pytest.mark.parametrize("end", ["bridge.close()", "pass"])
def test_an_interrupt_ends_the_wait_and_nothing_outlives_the_program(
    end: str, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    behaviours = {"wait": do("progress"), "echo": "echo"}
    command, args = ScriptedServer(behaviours=behaviours, starts=starts).command
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", end), command, *args],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted and alive\n", "")
    assert starts.exists()
    left = [p for p in psutil.process_iter(["cmdline"]) if str(starts) in str(p.info["cmdline"])]
    assert psutil.wait_procs(left, timeout=5)[1] == []
