"""``bascule up --workers N``: several processes at one port, seen as one; real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from bascule.testing import ScriptedServer
from tests.cli.served import process
from tests.flow.servers import lines_of
from tests.flow.up_process import Up, run, serving
from tests.flow.worker_kept import (
    AT_ONCE,
    approved_call,
    held_turn,
    parked_turn,
    rest_of_output,
    session_goes_on,
)
from tests.flow.worker_lines import WORKERS, lines_to, two_workers
from tests.manager.agents import entry, started, write
from tests.waits import SOON_SECONDS, until


@pytest.mark.requirement("workers:share-port")
async def test_every_worker_takes_calls_and_the_control_plane_is_at_the_same_port(tmp_path: Path):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path))
        lines = await lines_to(up, token, stack)
        assert sorted(lines) == [1, 2]
        for line in lines.values():
            line.headers = {"Authorization": f"Bearer {up.admin}"}
            status, page = await _text(line, "/admin/")
            assert (status, "<!doctype html>" in page) == (200, True)
            status, listed = await line.ask("GET", "/admin/api/mcp/servers")
            assert (status, [one["server_id"] for one in listed["servers"]]) == (200, ["s"])
            assert (await line.ask("GET", "/api/v1/identity"))[1]["role"] == "admin"
            assert (await line.ask("GET", "/healthz"))[1]["status"] == "ok"
            made = {"role": "client", "name": "new", "task_id": "t"}
            status, fresh = await line.ask("POST", "/admin/api/tokens", made)
            assert status == 201, fresh
            line.headers = {"Authorization": f"Bearer {fresh['token']}"}
            assert (await line.call("s/echo", arguments={"text": "at once"}))["ok"]
            line.headers = {}
            assert (await line.ask("GET", "/admin/api/mcp/servers"))[0] == 401
            admin = {"Authorization": f"Bearer {up.admin}"}
            async with line.http.get(f"{up.url}/admin/api/live", headers=admin) as events:
                [kind] = events.headers.getall("content-type")
                assert kind.startswith("text/event-stream")
                assert await events.content.readline()
        nodes = (await up.get("/admin/api/nodes"))["nodes"]
        assert [(one["name"], one["state"]) for one in nodes] == [
            ("local/1", "ok"),
            ("local/2", "ok"),
        ]

        async def runs_twice() -> bool:
            """The server runs once for each worker, and its status says so."""
            found = (await up.get("/admin/api/mcp/servers/s"))["status"]
            return {n: s["state"] for n, s in found["nodes"].items()} == {
                "local/1": "connected",
                "local/2": "connected",
            }

        await until(runs_twice)
        tried = "/admin/api/mcp/servers/s/test"
        status, trial = await up.ask("POST", tried, token=up.admin, body={})
        assert (status, trial["ok"]) == (200, True), trial
        assert await up.end() == 0


@pytest.mark.requirement("audit:ledger:sent")
async def test_what_workers_did_is_in_the_trail_of_the_control_plane(tmp_path: Path):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path))
        lines = await lines_to(up, token, stack)
        for line in lines.values():
            assert (await line.call("s/echo", arguments={"text": "noted"}))["ok"]

        async def has_both() -> bool:
            found = [await up.get(f"/admin/api/audit?event=call&node=local/{n}") for n in lines]
            return all(one["entries"] for one in found)

        await until(has_both)
        assert (await up.get("/admin/api/audit?event=call&node=local"))["entries"] == []
        assert await up.end() == 0


@pytest.mark.requirement("registry:grpc:ledger-accepted")
async def test_the_ledger_of_a_worker_that_was_put_back_is_accepted_at_its_data_directory(
    tmp_path: Path,
):
    data = tmp_path / "data"
    folder = data / "workers" / "1"
    async with two_workers(tmp_path) as (up, token):
        await _called_at_first(up, token)
        assert await up.end() == 0
    kept = (folder / "ledger.db").read_bytes()
    async with serving(data, *WORKERS) as up:
        await _called_at_first(up, token)
        assert await up.end() == 0
    for file in folder.glob("ledger.db*"):
        file.unlink()
    (folder / "ledger.db").write_bytes(kept)
    async with serving(data, *WORKERS) as up, AsyncExitStack() as stack:
        lines = await lines_to(up, token, stack)
        assert (await lines[1].call("s/echo", arguments={"text": "on"}))["ok"], "calls go on"
        words = ("--json", "--data-dir", str(data))

        async def refused() -> list[bool]:
            code, out, err = await run("node", "status", *words)
            assert code == 0, err
            found = [one["standing"]["ledger"] for one in json.loads(out)["workers"]]
            return [bool(one) for one in found] if found[0] else []

        assert await until(refused) == [True, False]
        code, out, err = await run("node", "accept", "--ledger", *words)
        assert (code, [one["standing"]["ledger"] for one in json.loads(out)["workers"]]) == (
            0,
            [None, None],
        ), err
        await _called_at_first(up, token)
        code, out, err = await run("audit", "verify", *words)
        assert (code, json.loads(out)["problems"]) == (0, []), err


async def _called_at_first(up: Up, token: str) -> None:
    """Call at the first worker, and wait until the control plane has that."""
    async with AsyncExitStack() as stack:
        lines = await lines_to(up, token, stack)
        called = (await lines[1].call("s/echo", arguments={"text": "noted"}))["request_id"]

        async def has_it() -> bool:
            found = await up.get("/admin/api/audit?event=call&node=local/1")
            return called in {one["event"]["request_id"] for one in found["entries"]}

        await until(has_it)


async def _text(line: Any, path: str) -> tuple[int, str]:
    async with line.http.get(line.url + path) as answer:
        return answer.status, await answer.text()


@pytest.mark.requirement("workers:owned-ids")
async def test_what_one_worker_keeps_is_reached_through_the_other(tmp_path: Path):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path, **AT_ONCE))
        lines = await lines_to(up, token, stack)
        here, there = lines[1], lines[2]
        await session_goes_on(here, there, tmp_path / "journal")
        await rest_of_output(here, there)
        await held_turn(here, there)
        await parked_turn(here, there, up)
        await approved_call(here, there, up)
        assert await up.end() == 0


@pytest.mark.requirement("workers:end-together")
@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGKILL])
async def test_nobody_is_left_when_the_process_ends(tmp_path: Path, order: signal.Signals):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path))
        assert len(await lines_to(up, token, stack)) == 2
        below = psutil.Process(up.process.pid).children(recursive=True)
        assert len(below) >= 4  # two workers, and what each of them started
        code = await up.end(order)
        assert code == (0 if order == signal.SIGTERM else -signal.SIGKILL)
        await until(lambda: not any(map(_lives, below)))


@pytest.mark.requirement("workers:end-together")
async def test_a_call_that_was_handed_over_may_end_when_all_are_told_to(tmp_path: Path):
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path))
        lines = await lines_to(up, token, stack)
        client, other = lines[1].mcp(modern=False), lines[2].mcp(modern=False)
        await client.open()
        other.session = client.session
        calling = asyncio.create_task(other.ask("tools/call", {"name": "mcp__s__gated"}))
        await until(lambda: "gated" in "".join(lines_of(tmp_path / "journal")))
        up.process.send_signal(signal.SIGTERM)
        await until(lambda: _refuses(up.url))
        (tmp_path / "gate").touch()
        async with asyncio.timeout(SOON_SECONDS):
            assert (await calling).status == 200
            assert await up.process.wait() == 0


async def _refuses(url: str) -> bool:
    """Say whether nobody is let in any more."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    except OSError:
        return True
    writer.transport.abort()
    return False


def _lives(found: psutil.Process) -> bool:
    return found.is_running() and found.status() != psutil.STATUS_ZOMBIE


@pytest.mark.requirement("workers:bad-number")
@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("0", "node.workers: must be at least 1"),
        ("-1", "node.workers: must be at least 1"),
        ("1000", "node.workers: must be at most 64"),
        ("many", "--workers"),
    ],
)
@pytest.mark.parametrize("command", [("up",), ("node", "serve", "--registry", "127.0.0.1:1")])
async def test_a_number_of_workers_that_is_none_is_refused_by_name(
    tmp_path: Path, command: tuple[str, ...], number: str, said: str
):
    given = (*command, "--data-dir", str(tmp_path / "data"), "--workers", number)
    done = await asyncio.to_thread(process, *given, BASCULE_TOKEN="bsc_x")
    assert done.code != 0
    assert said in done.err
    assert not (tmp_path / "data").exists()


@pytest.mark.requirement("workers:agents")
async def test_the_servers_of_agents_are_connected_once_and_reached_through_every_worker(
    tmp_path: Path,
):
    file, starts = tmp_path / "agents.toml", tmp_path / "starts"
    own = entry("own", ScriptedServer(starts=starts))
    write(file, {"id": "main", "mcp": [own]})
    async with AsyncExitStack() as stack:
        up, token = await stack.enter_async_context(two_workers(tmp_path, "--agents", str(file)))
        lines = await lines_to(up, token, stack)
        assert sorted(lines) == [1, 2]
        for line in lines.values():
            line.headers = {"Authorization": f"Bearer {up.admin}"}
            assert "agents" in (await line.ask("GET", "/api/v1/identity"))[1]["serves"]
            status, found = await line.ask("GET", "/api/agents/mcp", agent_id="main")
            assert (status, [one["state"] for one in found["servers"]]) == (200, ["connected"])
        assert started(starts) == 1
        more = entry("more", ScriptedServer(starts=starts))
        path, query = "/api/agents/mcp/servers", {"agent_id": "main"}
        status, made = await lines[1].ask("POST", path, more, **query)
        assert (status, made["server"]["state"]) == (201, "connected"), made
        status, found = await lines[2].ask("GET", "/api/agents/mcp", agent_id="main")
        assert [one["name"] for one in found["servers"]] == ["own", "more"]
        write(file, {"id": "main", "mcp": []})

        async def is_empty() -> bool:
            return (await lines[2].ask("GET", "/api/agents/mcp", **query))[1]["servers"] == []

        await until(is_empty)
        below = psutil.Process(up.process.pid).children(recursive=True)
        assert await up.end() == 0
        await until(lambda: not any(map(_lives, below)))
