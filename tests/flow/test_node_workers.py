"""``bascule node serve --workers N``: one node in several processes, and the loss of one."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from tests.flow.node_process import Plane, node, not_started, plane
from tests.flow.up_process import Json, Up, run
from tests.flow.worker_lines import TASK, WORKERS, Line, lines_to, scripted
from tests.waits import until


async def status_of(up: Up) -> Json:
    """Ask a node how it stands, as its owner."""
    code, out, err = await run("node", "status", "--json", "--data-dir", str(up.data))
    assert code == 0, err
    return json.loads(out)


async def prepared(stack: AsyncExitStack, folder: Path, **env: str) -> tuple[Plane, Up, str, str]:
    """Serve a control plane, and a node of two workers; give the tokens of both."""
    served = await stack.enter_async_context(plane(folder / "plane"))
    record = scripted(folder)
    await served.put("servers", "s", record)
    await served.put("tasks", "t", TASK)
    own, _ = await served.token("node", "--name", "east")
    client, _ = await served.token("client", "--task", "t")
    line = f"{sys.executable} **"
    up = await stack.enter_async_context(
        node(folder / "node", served.grpc, own, *WORKERS, "--allow-executable", line, **env)
    )
    return served, up, own, client


@pytest.mark.requirement("workers:restart")
async def test_a_worker_that_is_killed_comes_back_while_the_other_serves(tmp_path: Path):
    async with AsyncExitStack() as stack:
        served, up, _, client = await prepared(stack, tmp_path)
        lines = await lines_to(up, client, stack)
        here, there = lines[1], lines[2]
        session = here.mcp(modern=False)
        await session.open()
        before = await status_of(up)
        assert (before["node"], [one["state"] for one in before["workers"]]) == (
            "east",
            ["serving"] * 2,
        )
        assert [one["standing"]["node"] for one in before["workers"]] == ["east/1", "east/2"]
        assert [one["standing"]["servers"][0]["state"] for one in before["workers"]] == [
            "connected"
        ] * 2
        os.kill(before["workers"][0]["pid"], signal.SIGKILL)

        async def says(status: str) -> bool:
            """Call at the other worker all the while: it has to be there."""
            assert (await there.worker()) == 2
            return (await there.ask("GET", "/healthz"))[1]["status"] == status

        await until(lambda: says("degraded"))
        health = (await there.ask("GET", "/healthz"))[1]
        assert list(health["reasons"]) == ["workers_down"]
        other = there.mcp(modern=False)
        other.session = session.session  # its worker is gone, or has forgotten it: any goes on
        asked = {"name": "mcp__s__echo", "arguments": {"text": "on"}}
        assert (await other.ask("tools/call", asked)).status == 200
        await until(lambda: says("ok"))
        after = await status_of(up)
        [first, second] = after["workers"]
        assert (first["restarts"], second["restarts"]) == (1, 0)
        assert first["pid"] != before["workers"][0]["pid"]
        assert second["pid"] == before["workers"][1]["pid"]
        assert len(await lines_to(up, client, stack)) == 2
        await until(lambda: knows(served, "east/1", "east/2"))
        assert await up.end() == 0
        await until(lambda: knows(served))


@pytest.mark.requirement("workers:hung")
async def test_a_worker_that_hangs_is_ended_and_started_again_while_the_other_serves(
    tmp_path: Path,
):
    async with AsyncExitStack() as stack:
        _, up, _, client = await prepared(stack, tmp_path, BASCULE_NODE_WORKER_SECONDS="5")
        there = (await lines_to(up, client, stack))[2]
        pid = (await status_of(up))["workers"][0]["pid"]
        os.kill(pid, signal.SIGSTOP)

        async def says(status: str) -> bool:
            """Call at the other worker all the while: it has to be there."""
            assert (await there.worker()) == 2
            return (await there.ask("GET", "/healthz"))[1]["status"] == status

        await until(lambda: says("degraded"))
        assert not psutil.pid_exists(pid)
        await until(lambda: says("ok"))
        first = (await status_of(up))["workers"][0]
        assert (first["restarts"] > 0, first["pid"] != pid) == (True, True)
        assert len(await lines_to(up, client, stack)) == 2
        assert await up.end() == 0
        assert up.process.stderr is not None
        said = (await up.process.stderr.read()).decode()
        assert "worker 1 has not answered for 5 seconds and is ended" in said
        assert "worker 1 is gone and is started again: no answer for 5 seconds" in said


async def knows(served: Plane, *names: str) -> bool:
    nodes = (await served.up.get("/admin/api/nodes"))["nodes"]
    return [one["name"] for one in nodes if one["state"] == "ok"] == [*names]


@pytest.mark.requirement("workers:each-asked")
async def test_each_worker_answers_for_itself_through_any(tmp_path: Path):
    async with AsyncExitStack() as stack:
        served, up, _, client = await prepared(stack, tmp_path)
        lines = await lines_to(up, client, stack)
        viewer, _ = await served.token("viewer", "--name", "prometheus")
        await until(lambda: taken(lines, viewer))
        before = [await calls(lines[1], viewer, n) for n in ("1", "2")]
        for _ in range(3):
            assert await lines[2].worker() == 2
        for line in lines.values():
            after = [await calls(line, viewer, n) for n in ("1", "2")]
            assert after == [before[0], before[1] + 3]  # each counts its own, whoever is asked
            status, refused = await figures(line, viewer, "3")
            assert (status, "there is no worker 3" in refused) == (404, True)
            status, refused = await figures(line, viewer, "x")
            assert (status, "worker: must be the number of one" in refused) == (400, True)
        code, out, err = await run("node", "status", "--data-dir", str(up.data))
        assert code == 0, err
        assert "worker 2 is serving, process" in out
        code, out, err = await run("node", "accept", "--json", "--data-dir", str(up.data))
        assert (code, [one["standing"]["state"] for one in json.loads(out)["workers"]]) == (
            0,
            ["ok", "ok"],
        ), err


async def figures(line: Line, token: str, worker: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"}
    url, query = f"{line.url}/metrics", {"worker": worker}
    async with line.http.get(url, headers=headers, params=query) as answer:
        return answer.status, await answer.text()


async def taken(lines: dict[int, Line], token: str) -> bool:
    return all([(await figures(one, token, "1"))[0] == 200 for one in lines.values()])


async def calls(line: Line, token: str, worker: str) -> int:
    """Return how many calls a worker has counted."""
    _, text = await figures(line, token, worker)
    found = [one for one in text.splitlines() if one.startswith("mcp_tool_call_total{")]
    return int(sum(float(one.rpartition(" ")[2]) for one in found))


@pytest.mark.requirement("workers:restart")
async def test_workers_start_without_their_control_plane_from_what_each_kept(tmp_path: Path):
    async with AsyncExitStack() as stack:
        served, up, own, client = await prepared(stack, tmp_path)
        assert len(await lines_to(up, client, stack)) == 2
        assert await up.end() == 0
        assert await served.up.end() == 0
        words = ("--allow-executable", f"{sys.executable} **", *WORKERS)
        async with node(up.data, served.grpc, own, *words) as again:
            assert len(await lines_to(again, client, stack)) == 2
            found = (await status_of(again))["workers"]
            assert [one["standing"]["state"] for one in found] == ["degraded"] * 2
            health = (await again.ask("GET", "/healthz"))[1]
            assert list(health["reasons"]) == ["not_following"]
            assert await again.end() == 0


@pytest.mark.requirement("registry:grpc:follow-one-process")
async def test_a_second_process_on_the_identity_of_a_worker_is_refused_and_shown(tmp_path: Path):
    async with AsyncExitStack() as stack:
        served, up, own, client = await prepared(stack, tmp_path)
        assert len(await lines_to(up, client, stack)) == 2
        words = ("--registry", served.grpc, *WORKERS, "--wait", "1")
        said = await not_started(tmp_path / "second", *words, BASCULE_TOKEN=own)
        assert "another process follows as node 'east/" in said
        nodes = (await served.up.get("/admin/api/nodes"))["nodes"]
        doubled = {one["name"] for one in nodes if one["doubled_at"] is not None}
        assert doubled & {"east/1", "east/2"}
        assert await up.end() == 0


async def test_a_port_that_another_node_shares_is_not_shared_with_that(tmp_path: Path):
    async with AsyncExitStack() as stack:
        served, up, _, _ = await prepared(stack, tmp_path)
        other, _ = await served.token("node", "--name", "west")
        port = up.url.rpartition(":")[2]
        words = ("--registry", served.grpc, *WORKERS, "--port", port)
        said = await not_started(tmp_path / "other", *words, BASCULE_TOKEN=other)
        assert "another process serves there" in said


async def test_what_keeps_a_worker_from_starting_is_what_the_node_says(tmp_path: Path):
    async with plane(tmp_path / "plane") as served:
        words = ("--registry", served.grpc, *WORKERS, "--wait", "1")
        said = await not_started(tmp_path / "node", *words, BASCULE_TOKEN="bsc_unknown")
        assert "the token is not valid" in said
