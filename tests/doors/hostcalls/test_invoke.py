"""A task's module, run by the node for a client: in a process of its own, told as a stream."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bascule.app.guest_child import COMPILING_BYTES
from bascule.asgi.sse import Event
from bascule.audit.events import SessionRefusal
from bascule.client.guests import GuestWritten
from bascule.client.http import ApiError
from bascule.doors.hostcalls.api import MAX_PER_TOKEN, GuestRules
from bascule.doors.hostcalls.orders import GuestOrder, KeptModules
from bascule.outbound.rules import NodeRules
from bascule.wire.api.guests import GuestExit, GuestLog, Invocation
from tests.asgi.caller import ask
from tests.control.api.contract import refuse_undescribed
from tests.doors.hostcalls.invoking import (
    CALLING,
    ENDLESS,
    TALKING,
    Node,
    checksum,
    command_line,
    exit_of,
    first,
    heard,
    module,
)
from tests.node.fakes import Doorman
from tests.waits import ended, until

#: Begins with more memory than a guest may have.
LARGE = '(module (memory (export "memory") 1040) (func (export "_start")))'


class Held:
    """A guest that waits to be ended."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    async def events(self) -> AsyncGenerator[Event, None]:
        yield Event(event="log", data=GuestLog(level="info", text="there"))
        await self._told.wait()
        yield Event(event="exit", data=GuestExit(reason="interrupted"))

    def interrupt(self) -> None:
        self._told.set()

    async def end(self) -> None:
        self._told.set()


class Holding:
    """Starts guests that wait, and knows what they were ordered to do."""

    def __init__(self) -> None:
        self.orders: list[GuestOrder] = []

    async def launch(self, order: GuestOrder) -> Held:
        self.orders.append(order)
        return Held()


async def refused(node: Node, token: str, task: str, added: Invocation | None = None) -> ApiError:
    """Return why an invocation was refused, before any stream."""
    with pytest.raises(ApiError) as error:
        await heard(node.invoked(token, task, added))
    return error.value


# --- a guest that runs


@pytest.mark.requirement("hostcalls:invoke", "hostcalls:invoke:audit")
async def test_a_guest_is_told_as_a_stream_and_given_what_task_and_caller_add(tmp_path: Path):
    path, digest = module(tmp_path, TALKING), checksum(TALKING)
    executable = {"path": path, "checksum_sha256": digest, "args": ["$${A}"], "env": {"A": "1"}}
    async with Node({"t": executable}) as node:
        token = await node.token("t")
        added = Invocation(args=("b", "c"), env={"B": "2"})
        *said, over = await heard(node.invoked(token, "t", added))
    assert said == [
        GuestLog(level="info", text="hello"),
        GuestWritten("stdout", b"hello"),
        GuestWritten("stderr", b"\xff\xfe"),
    ]
    [written] = node.ended()
    assert (written.task_id, written.caller, written.path) == ("t", "alice", path)
    assert (written.sha256, written.reason, written.exit_code) == (digest, "exited", 42)
    assert isinstance(over, GuestExit)
    assert (over.reason, over.code) == ("exited", 42)  # four words, its own name too; two variables


@pytest.mark.requirement("hostcalls:invoke:hang-up")
async def test_hanging_up_ends_the_process_and_frees_the_place(tmp_path: Path):
    rules = GuestRules(most=1)
    async with Node({"t": {"path": module(tmp_path, ENDLESS)}}, rules) as node:
        token = await node.token("t")
        stream = node.invoked(token, "t")
        assert await first(stream) == GuestWritten("stdout", b"there")
        [guest] = node.processes.launched
        assert token.encode() not in command_line(guest.pid)
        assert os.getpgid(guest.pid) == guest.pid
        assert resource.prlimit(guest.pid, resource.RLIMIT_CORE) == (0, 0)
        assert resource.prlimit(guest.pid, resource.RLIMIT_CPU)[1] > rules.seconds
        assert resource.prlimit(guest.pid, resource.RLIMIT_DATA)[1] > COMPILING_BYTES
        assert (await refused(node, token, "t")).status == 429
        await stream.aclose()
        await ended(guest.pid)
        await until(lambda: guest.ended)
        await until(lambda: [one.reason for one in node.ended()] == ["interrupted"])
        late = await exit_of(node.invoked(token, "t", Invocation(timeout_ms=50)))
    assert late.reason == "timeout"


@pytest.mark.requirement("hostcalls:module-cache")
async def test_a_module_is_compiled_once_for_a_node(tmp_path: Path):
    folder = tmp_path / "modules"
    kept = KeptModules(str(folder), b"k" * 32)
    async with Node({"t": {"path": module(tmp_path, TALKING)}}, modules=kept) as node:
        assert (await exit_of(await node.runs("t"))).code == 10
        [compiled] = folder.iterdir()
        inode = compiled.stat().st_ino
        assert (await exit_of(await node.runs("t"))).code == 10
    assert [path.stat().st_ino for path in folder.iterdir()] == [inode]  # written once
    assert "kkkk" not in repr(kept)


@pytest.mark.requirement("hostcalls:invoke:isolated")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
async def test_a_fault_of_the_engine_ends_its_own_guest_alone(
    tmp_path: Path, number: signal.Signals
):
    path = {"path": module(tmp_path, ENDLESS)}
    async with Node({"t": path, "u": path}) as node:
        struck, other = await node.runs("t"), await node.runs("u")
        await asyncio.gather(first(struck), first(other))
        by_task = {guest.task: guest for guest in node.processes.launched}
        os.kill(by_task["t"].pid, number)
        over = await exit_of(struck)
        assert (over.reason, over.code) == ("crashed", 1)
        assert number.name in over.message
        assert not by_task["u"].ended
        await other.aclose()


@pytest.mark.requirement("hostcalls:invoke:checksum")
async def test_what_keeps_a_module_from_running_is_an_error_before_the_stream(tmp_path: Path):
    text = tmp_path / "text.wasm"
    text.write_text("(module)", encoding="utf-8")
    wrong = {"path": module(tmp_path, TALKING), "checksum_sha256": "0" * 64}
    executables = {
        "text": {"path": str(text)},
        "strange": {"path": module(tmp_path, '(module (import "odd" "f" (func)))')},
        "missing": {"path": str(tmp_path / "none.wasm")},
        "wrong": wrong,
        "large": {"path": module(tmp_path, LARGE)},
    }
    async with Node(executables) as node:
        tokens = [await node.token(task) for task in executables]
        asked = zip(tokens, executables, strict=True)
        found = await asyncio.gather(*(refused(node, *one) for one in asked))
    errors = dict(zip(executables, found, strict=True))
    assert {(error.status, error.code) for error in found} == {(422, "bad_module")}
    assert "odd.f" in str(errors["strange"])
    assert "65 MiB" in str(errors["large"])
    assert "none.wasm" in str(errors["missing"])
    assert "checksum_sha256" in str(errors["wrong"])


@pytest.mark.requirement("hostcalls:invoke:hang-up")
async def test_its_calls_are_those_of_its_token_and_end_when_it_is_hung_up(tmp_path: Path):
    path = {"path": module(tmp_path, CALLING)}
    async with Node({"t": path, "u": path}) as node:
        door = Doorman()
        node.world.caller.answers("read", door)
        gateway = await node.token("u", acts_for_users=True)
        left, staying = await node.runs("t"), node.invoked(gateway, "u", person="ann")
        waiting = [asyncio.create_task(heard(left)), asyncio.create_task(heard(staying))]
        opens = [await door.next(), await door.next()]
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        [gone] = await until(node.world.ledger.calls)
        for one in opens:
            one.set()
        *_, over = await waiting[1]
        served = node.world.ledger.calls()[-1]
    assert isinstance(over, GuestExit)
    assert (over.reason, over.calls > 0) == ("exited", True)
    assert (gone.task_id, gone.status, gone.caller) == ("t", "cancelled", "alice")
    assert (served.task_id, served.status, served.person) == ("u", "ok", "ann")


# --- who may, and what


async def test_a_token_runs_the_module_of_its_own_task_alone(tmp_path: Path):
    path = {"path": module(tmp_path, TALKING)}
    starter = Holding()
    async with Node({"t": path, "u": path}, starter=starter) as node:
        error = await refused(node, await node.token("u"), "t")
        assert (error.status, error.code) == (403, "session_refused")
        [noted] = node.world.ledger.events
        assert isinstance(noted, SessionRefusal)
        assert (noted.reason, noted.token_id is None) == ("task", False)
        admin = (await node.tokens.mint("root", "admin")).token
        assert (await refused(node, admin, "t")).code == "forbidden"
    assert starter.orders == []


async def test_a_task_without_an_executable_says_which_command_sets_one():
    async with Node({"t": None}, starter=Holding()) as node:
        error = await refused(node, await node.token("t"), "t")
    assert error.status == 409
    assert "bascule tasks set t executable.path=" in str(error)


@pytest.mark.parametrize(
    ("executable", "added", "words"),
    [
        ({"path": "guest.wasm"}, None, "executable.path"),
        ({"path": __file__, "env": {"K": "${ENV:HOME}"}}, None, "executable.env.K"),
        ({"path": __file__, "args": ["x", "secret://k"]}, None, "executable.args[1]"),
        (
            {"path": __file__, "env": {"K": "1"}},
            Invocation(env={"K": "2"}),
            "env.K: the task sets it",
        ),
    ],
)
async def test_what_cannot_be_given_to_a_guest_is_named(
    executable: dict[str, object], added: Invocation | None, words: str
):
    starter = Holding()
    async with Node({"t": executable}, starter=starter) as node:
        error = await refused(node, await node.token("t"), "t", added)
    assert (error.status, error.code) == (422, "invalid_record")
    assert words in str(error)
    assert starter.orders == []


@pytest.mark.requirement("hostcalls:invoke:rules")
async def test_the_owner_of_the_node_says_which_modules_run(tmp_path: Path):
    listed, private = tmp_path / "listed", tmp_path / "private"
    listed.mkdir()
    private.mkdir()
    for folder in (tmp_path, listed, private):
        (folder / "g.wasm").touch()
    (listed / "out.wasm").symlink_to(tmp_path / "g.wasm")
    (listed / "in.wasm").symlink_to(private / "g.wasm")
    names = ("listed/g.wasm", "listed/out.wasm", "listed/in.wasm", "listed/../g.wasm")
    executables = {f"t{at}": {"path": f"{tmp_path}/{name}"} for at, name in enumerate(names)}
    lists = NodeRules(guests=(f"{listed}/*", f"{private}/*"), private=(str(private),))
    starter = Holding()
    async with Node(executables, GuestRules(lists=lists), starter) as node:
        for task in ("t1", "t2", "t3"):
            error = await refused(node, await node.token(task), task)
            assert (error.status, error.code) == (403, "guest_refused")
            assert "[node] guests" in str(error)
        assert f'add "{tmp_path}/g.wasm" to [node] guests' in str(error)
        stream = node.invoked(await node.token("t0"), "t0")
        await first(stream)
        await stream.aclose()
    assert [order.path for order in starter.orders] == [f"{listed}/g.wasm"]


async def test_a_list_of_something_else_closes_guests(tmp_path: Path):
    rules = GuestRules(lists=NodeRules(files=()))
    executables = {"t": {"path": str(tmp_path / "g.wasm")}}
    async with Node(executables, rules, starter=Holding()) as node:
        assert (await refused(node, await node.token("t"), "t")).code == "guest_refused"


async def test_a_node_without_an_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    async with Node({"t": {"path": __file__}}, starter=Holding()) as node:
        error = await refused(node, await node.token("t"), "t")
    assert (error.status, error.code) == (501, "no_engine")
    assert "bascule[wasm]" in str(error)


# --- how many, and until when


@pytest.mark.requirement("hostcalls:invoke:bounded")
async def test_a_token_has_four_guests_and_the_node_as_many_as_it_is_told():
    async with Node({"t": {"path": __file__}}, GuestRules(most=5), starter=Holding()) as node:
        token, other = await node.token("t"), await node.token("t")
        streams = [node.invoked(token, "t") for _ in range(MAX_PER_TOKEN)]
        await asyncio.gather(*map(first, streams))
        answer = await ask(
            node.app, "POST", "/api/v1/tasks/t/invoke", {"Authorization": f"Bearer {token}"}
        )
        assert (answer.status, answer.code) == (429, "mcp_budget_exceeded")
        assert answer.header("retry-after") is not None
        refuse_undescribed(node.routes, "POST", "/api/v1/tasks/t/invoke", answer)
        streams.append(node.invoked(other, "t"))
        await first(streams[-1])
        assert "node.max_guests" in str(await refused(node, other, "t"))
        for stream in streams:
            await stream.aclose()


async def test_a_caller_can_only_ask_for_less_time_and_has_the_nodes_memory():
    starter = Holding()
    rules = GuestRules(seconds=2, memory_bytes=131_072)
    async with Node({"t": {"path": __file__}}, rules, starter) as node:
        token = await node.token("t")
        for milliseconds in (500, 5_000, None):
            stream = node.invoked(token, "t", Invocation(timeout_ms=milliseconds))
            await first(stream)
            await stream.aclose()
    assert [order.limits.seconds for order in starter.orders] == [0.5, 2, 2]
    assert {order.limits.memory_bytes for order in starter.orders} == {131_072}
    assert token not in repr(starter.orders)


async def test_a_guest_ends_with_its_token():
    async with Node({"t": {"path": __file__}}, starter=Holding()) as node:
        minted = await node.tokens.mint("alice", "client", task_id="t")
        stream = node.invoked(minted.token, "t")
        await first(stream)
        await node.tokens.revoke(minted.record.id)
        ending = asyncio.create_task(exit_of(stream))
        await node.clock.asleep()
        await node.clock.advance(60)
        assert (await ending).reason == "interrupted"


async def test_a_guest_ends_with_the_server_and_says_so():
    node = Node({"t": {"path": __file__}}, starter=Holding())
    async with node:
        stream = node.invoked(await node.token("t"), "t")
        await first(stream)
        ending = asyncio.create_task(exit_of(stream))
    assert (await ending).reason == "interrupted"
