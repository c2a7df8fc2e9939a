"""The pool over real processes: what they are given, how many there may be, what is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import OutcomeUnknown, ServerUnavailable
from bascule.model.server import ServerRecord, Stdio
from bascule.node.homes import Homes
from bascule.node.pool.opener import Opener
from bascule.node.pool.pool import Pool
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.transport.channel import Events
from bascule.node.settings import NodeSettings
from bascule.testing import FakeClock, ScriptedServer, do, tool
from tests.flow.servers import lines_of
from tests.node.pool.conftest import snapshot
from tests.node.pool.fake_channel import our_tasks, outgoing
from tests.waits import SOON_SECONDS, until


def local(server_id: str, server: ScriptedServer | None = None, **fields: Any) -> ServerRecord:
    command, args = (server or ScriptedServer(behaviours={"env": "env", "echo": "echo"})).command
    stdio = Stdio(command=command, args=tuple(args), **fields.pop("stdio", {}))
    return ServerRecord(server_id=server_id, transport="stdio", stdio=stdio, **fields)


@contextlib.asynccontextmanager
async def running(
    *records: ServerRecord,
    environ: dict[str, str] | None = None,
    clock: FakeClock | None = None,
    homes: Homes | None = None,
    **settings: Any,
) -> AsyncGenerator[Pool]:
    """A pool over real processes, and nothing left of it afterwards."""
    before = our_tasks()
    limits = NodeSettings(**settings)
    opener = Opener(
        PlainSpawner(),
        environ=environ,
        max_processes=limits.max_processes,
        max_processes_per_task=limits.max_processes_per_task,
        homes=homes,
    )
    options: dict[str, Any] = {} if clock is None else {"clock": clock}
    pool = Pool(opener, settings=limits, **options)
    try:
        async with asyncio.timeout(25):
            await pool.apply(snapshot(*records))
            yield pool
    finally:
        await pool.close()
    assert our_tasks() <= before


async def call(
    pool: Pool, server_id: str, tool: str = "echo", session: str = "s", **arguments: Any
) -> str:
    payload = json.dumps(arguments).encode()
    result: Any = await pool.send(outgoing(server_id, session, tool, payload, timeout=10.0))
    return result["content"][0]["text"]


async def about(pool: Pool, server_id: str, session: str = "s") -> dict[str, Any]:
    return json.loads(await call(pool, server_id, "env", session))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def present(*folders: Path) -> list[Path]:
    return [folder for folder in folders if folder.is_dir()]


def leave(*folders: str) -> None:
    """Leave something behind, as a launcher that fetches does."""
    for folder in folders:
        Path(folder, "fetched").mkdir()


def replace_by_link(folder: Path, target: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(target)


def private(folder: Path) -> bool:
    return folder.stat().st_mode & 0o777 == 0o700


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counting, not walking


# -- one process -------------------------------------------------------------------------


@pytest.mark.requirement(
    "process:private-home", "process:killed-on-disconnect", "process:deterministic-close"
)
async def test_a_servers_private_folders_and_process_are_gone_when_closing_returns():
    async with running(local("one")) as pool:
        given = await about(pool, "one")
        home, temporary = Path(given["env"]["HOME"]), Path(given["env"]["TMPDIR"])
        assert present(home, temporary) == [home, temporary]
        assert private(home)
        (home / "kept").write_text("something", encoding="utf-8")
        await pool.apply(snapshot())
        assert not is_running(given["pid"])
        assert present(home, temporary) == []
        root = home.parent.parent.parent
        assert present(root) == [root]
    assert present(root) == []


@pytest.mark.requirement("process:idle-reaping", "process:private-home")
async def test_an_idle_process_is_ended_and_started_again_on_demand():
    clock = FakeClock()
    async with running(
        local("one"), clock=clock, idle_seconds=60.0, keepalive_seconds=60.0
    ) as pool:
        first = await about(pool, "one")
        await clock.advance(60.0)
        assert pool.statuses()[0].state == "disconnected"
        await until(lambda: not is_running(first["pid"]))
        second = await about(pool, "one")
        assert second["pid"] != first["pid"]
        assert second["env"]["HOME"] != first["env"]["HOME"]


@pytest.mark.requirement("pool:restart-on-disconnect")
async def test_a_server_that_dies_in_a_call_serves_the_next(tmp_path: Path):
    starts = tmp_path / "starts"
    server = ScriptedServer(
        behaviours={"echo": "echo", "die": do("die", signal="KILL")}, starts=starts
    )
    async with running(local("one", server)) as pool:
        with pytest.raises(OutcomeUnknown):
            await call(pool, "one", "die")
        assert await call(pool, "one", text="hello") == "hello"
        assert len(starts.read_text(encoding="utf-8").split()) == 2
        (status,) = pool.statuses()
        assert (status.state, status.reconnects) == ("connected", 1)
        assert "ended" in (status.last_error or "") or "closed" in (status.last_error or "")


@pytest.mark.requirement("pool:restart-on-change")
async def test_a_moved_servers_old_process_is_gone_before_the_new_one_starts(tmp_path: Path):
    """The old one is deaf to SIGTERM and to the end of its input; the new one looks for it."""
    stubborn = ScriptedServer(
        behaviours={"env": "env"}, ignore_sigterm=True, ignore_eof=True, starts=tmp_path / "one"
    )
    successor = ScriptedServer(behaviours={"env": "env"}, starts=tmp_path / "two")
    async with running(local("one", stubborn), local("other")) as pool:
        old, other = await about(pool, "one"), await about(pool, "other")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pool.apply(snapshot(local("one", successor), local("other"))))
            await FakeClock().settle(8)
            caller = tasks.create_task(about(pool, "one"))
            await until((tmp_path / "two").exists)
            assert not is_running(old["pid"])
        assert caller.result()["pid"] != old["pid"]
        assert (await about(pool, "other"))["pid"] == other["pid"]


@pytest.mark.requirement("pool:sharing:session")
async def test_sessions_of_an_unshared_server_have_a_process_and_a_home_each():
    async with running(local("one", sharing="session")) as pool:
        a, b = await asyncio.gather(about(pool, "one", "a"), about(pool, "one", "b"))
        assert a["pid"] != b["pid"]
        assert a["env"]["HOME"] != b["env"]["HOME"]
        await pool.release("a")
        assert (is_running(a["pid"]), is_running(b["pid"])) == (False, True)


@pytest.mark.requirement("process:home:kept")
async def test_a_server_keeps_its_home_from_start_to_start_and_not_its_temporary_folder(
    tmp_path: Path,
):
    seen: list[dict[str, str]] = []
    for _ in range(2):
        async with running(local("one"), homes=Homes(tmp_path)) as pool:
            env = (await about(pool, "one"))["env"]
            leave(env["TMPDIR"], *([] if seen else [env["HOME"]]))
            await pool.reconnect("one")
            again = (await about(pool, "one"))["env"]
            assert (again["HOME"], again["TMPDIR"] == env["TMPDIR"]) == (env["HOME"], False)
            seen.append(env)
    assert seen[0]["HOME"] == seen[1]["HOME"]
    assert private(Path(seen[0]["HOME"]))
    assert present(Path(seen[0]["HOME"], "fetched")) == [Path(seen[0]["HOME"], "fetched")]
    assert present(Path(seen[0]["TMPDIR"]), Path(seen[1]["TMPDIR"])) == []


@pytest.mark.requirement("process:home:temporary")
@pytest.mark.parametrize(
    "fields", [{"sharing": "session"}, {"stdio": {"home": "temporary"}}], ids=["session", "record"]
)
async def test_a_home_is_temporary_for_a_sessions_own_server_and_where_the_record_says_so(
    tmp_path: Path, fields: dict[str, Any]
):
    homes = Homes(tmp_path / "kept")
    async with running(local("one", **fields), homes=homes) as pool:
        home = Path((await about(pool, "one"))["env"]["HOME"])
        leave(str(home))
        assert not home.is_relative_to(tmp_path)
    assert (present(home), homes.found()) == ([], [])


@pytest.mark.requirement("process:home:shared")
async def test_two_nodes_may_run_the_same_server_in_the_same_home_at_once(tmp_path: Path):
    async with (
        running(local("one"), homes=Homes(tmp_path)) as here,
        running(local("one"), homes=Homes(tmp_path)) as there,
    ):
        a, b = await about(here, "one"), await about(there, "one")
        leave(a["env"]["HOME"])
        await here.close()
        assert a["env"]["HOME"] == b["env"]["HOME"]
        assert present(Path(b["env"]["HOME"])) == [Path(b["env"]["HOME"])]


async def test_a_home_that_was_replaced_by_a_link_fails_its_server_alone(tmp_path: Path):
    homes = Homes(tmp_path / "kept")
    async with running(local("one"), homes=homes) as pool:
        home = Path((await about(pool, "one"))["env"]["HOME"])
        leave(str(home))
    replace_by_link(home, tmp_path)
    async with running(local("one"), local("two"), homes=homes) as pool:
        with pytest.raises(ServerUnavailable, match="no folder of ours") as caught:
            await pool.listing("one", "s")
        assert caught.value.reason == "launch_denied"
        assert await call(pool, "two", text="well") == "well"


# -- limits ------------------------------------------------------------------------------


@pytest.mark.requirement("budgets:node:subprocesses")
async def test_at_the_process_limit_the_longest_idle_server_makes_room():
    clock = FakeClock()
    records = [local(name) for name in ("a", "b", "c")]
    async with running(*records, clock=clock, max_processes=2) as pool:
        for name in ("a", "b"):
            await call(pool, name)
            await clock.advance(1.0)
        await call(pool, "a")
        await clock.advance(1.0)
        assert await call(pool, "c", text="hello") == "hello"
        states = {status.server_id: status.state for status in pool.statuses()}
        assert states == {"a": "connected", "b": "disconnected", "c": "connected"}


@pytest.mark.requirement("budgets:node:subprocesses")
async def test_with_every_process_busy_another_is_refused_and_not_held_against_it(tmp_path: Path):
    gate = tmp_path / "gate"
    busy = ScriptedServer(behaviours={"wait": do("gate", path=str(gate))})
    async with running(local("busy", busy), local("late"), max_processes=1, park_after=2) as pool:
        waiting = asyncio.create_task(call(pool, "busy", "wait", text="done"))
        await until(lambda: pool.statuses()[0].state == "connected")
        for _ in range(4):
            with pytest.raises(ServerUnavailable, match="limit of 1 server process"):
                await call(pool, "late")
        gate.touch()
        assert await waiting == "done"
        assert await call(pool, "late", text="at last") == "at last"


@pytest.mark.requirement("budgets:node:subprocesses")
async def test_many_at_the_limit_get_room_as_long_as_something_is_idle(tmp_path: Path):
    starts = tmp_path / "starts"
    server = ScriptedServer(starts=starts)
    records = [local(f"s{number}", server) for number in range(8)]
    async with running(*records, max_processes=4) as pool:
        for number in range(4):
            await call(pool, f"s{number}")
        await asyncio.gather(*(call(pool, f"s{number}") for number in range(4, 8)))
        alive = [pid for pid in starts.read_text(encoding="utf-8").split() if is_running(int(pid))]
        assert len(alive) <= 4


async def test_failed_starts_leave_no_process_count_no_folder_and_no_descriptor(tmp_path: Path):
    broken = ScriptedServer(at_start=[do("die", code=3)])
    record = local("bad", broken)
    missing = ServerRecord(server_id="none", transport="stdio", stdio=Stdio(command="no-such-x"))
    async with running(record, missing, local("good"), max_processes=1) as pool:
        await call(pool, "good")
        before = descriptors()
        for _ in range(10):
            for name in ("bad", "none"):
                with pytest.raises(ServerUnavailable):
                    await pool.reconnect(name)
        assert await call(pool, "good", text="room is left") == "room is left"
        assert descriptors() <= before
        home = Path((await about(pool, "good"))["env"]["HOME"])
        assert len(list(home.parent.parent.parent.iterdir())) == 1


async def test_an_end_that_is_cancelled_is_still_seen_through(tmp_path: Path):
    deaf = ScriptedServer(
        ignore_sigterm=True, ignore_eof=True, starts=tmp_path / "starts", era="legacy"
    )
    opener = Opener(PlainSpawner())
    try:
        channel = await opener.open(local("one", deaf), Events())
        (pid,) = await until(lambda: lines_of(tmp_path / "starts"))
        closing = asyncio.create_task(channel.close())
        await FakeClock().settle(8)
        closing.cancel()
        async with asyncio.timeout(SOON_SECONDS):
            await asyncio.wait({closing})
        assert closing.cancelled()
        assert not is_running(int(pid))
    finally:
        await opener.close()


# -- references --------------------------------------------------------------------------


@pytest.mark.requirement("references:connect-time")
async def test_a_changed_variable_takes_effect_at_the_next_connect():
    environ = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    record = local("one", stdio={"env": {"SAID": "${ENV:GREETING}!"}})
    async with running(record, environ=environ) as pool:
        assert (await about(pool, "one"))["env"]["SAID"] == "hello!"
        environ["GREETING"] = "goodbye"
        assert (await about(pool, "one"))["env"]["SAID"] == "hello!"
        await pool.reconnect("one")
        assert (await about(pool, "one"))["env"]["SAID"] == "goodbye!"


@pytest.mark.requirement("references:missing-fails-alone", "pool:failure-skips")
async def test_a_missing_variable_fails_its_own_server_by_name_and_no_other():
    environ = {"PATH": os.environ["PATH"]}
    poor = local("poor", stdio={"env": {"TOKEN": "${ENV:NO_SUCH_VARIABLE}"}})
    async with running(poor, local("rich"), environ=environ) as pool:
        for _ in range(2):
            with pytest.raises(ServerUnavailable, match="NO_SUCH_VARIABLE") as caught:
                await pool.listing("poor", "s")
            assert caught.value.reason == "env_missing"
        assert (await pool.listing("rich", "s")).tools
        environ["NO_SUCH_VARIABLE"] = "here now"
        await pool.reconnect("poor")
        assert (await about(pool, "poor"))["env"]["TOKEN"] == "here now"


# -- lists -------------------------------------------------------------------------------


@pytest.mark.requirement("catalogue:list-changed")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_changed_tool_list_is_heard_of_in_both_eras(era: Any):
    change = do("change_tools", tools=[tool("change"), tool("added")], times=50)
    server = ScriptedServer(behaviours={"change": change}, era=era, ttl_ms=60_000)
    async with running(local("one", server)) as pool:
        listing = await pool.listing("one", "s")
        epoch = pool.epoch
        await until(lambda: era == "legacy" or len(our_tasks()) >= 3)
        await call(pool, "one", "change")
        await until(lambda: pool.epoch > epoch)
        after = await pool.listing("one", "s")
        assert [found.name for found in listing.tools] == ["change"]
        assert [found.name for found in after.tools] == ["added", "change"]


@pytest.mark.requirement("catalogue:pages")
async def test_every_page_is_read_and_of_an_endless_list_what_came_is_kept():
    paged = ScriptedServer(tools=[tool(f"t{number:02}") for number in range(25)], page_size=4)
    endless = ScriptedServer(pagination="endless")
    async with running(local("paged", paged), local("endless", endless)) as pool:
        assert len((await pool.listing("paged", "s")).tools) == 25
        endless_list = await pool.listing("endless", "s")
        assert [found.name for found in endless_list.tools] == ["echo"]
        assert "more than 64 pages" in "; ".join(endless_list.warnings)


# -- nothing is left ---------------------------------------------------------------------


@pytest.mark.requirement("pool:no-orphans", "process:deterministic-close")
async def test_a_pool_that_lived_through_everything_leaves_no_process_task_or_descriptor(
    tmp_path: Path,
):
    starts = tmp_path / "starts"
    server = ScriptedServer(
        behaviours={"echo": "echo", "die": do("die", signal="KILL")}, starts=starts
    )
    before, tasks = descriptors(), our_tasks()
    for _ in range(3):
        records = [local(f"s{number}", server) for number in range(4)]
        async with running(*records, local("own", server, sharing="session")) as pool:
            await asyncio.gather(*(pool.listing(record.server_id, "s") for record in records))
            for session in ("a", "b"):
                await call(pool, "own", session=session)
            with pytest.raises(OutcomeUnknown):
                await call(pool, "s0", "die")
            await pool.reconnect("s1")
            await pool.apply(snapshot(*records[1:]))
    pids = [int(pid) for pid in starts.read_text(encoding="utf-8").split()]
    assert len(pids) >= 3 * 7
    assert [pid for pid in pids if is_running(pid)] == []
    assert (our_tasks(), descriptors()) == (tasks, before)
