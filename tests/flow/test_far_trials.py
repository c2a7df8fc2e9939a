"""Trials and previews at a control plane alone, done by a node elsewhere; real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.wire.sse import SseReader
from tests.flow.node_process import ADMIN, Plane, filled, node, notes
from tests.flow.processes import traces
from tests.flow.up_process import Json, Up, run
from tests.outbound.real_servers import free_port
from tests.postgres.proxy import proxy
from tests.postgres.replicas import replicas
from tests.waits import DEADLINE_SECONDS, until

STEPS = ["resolve", "start", "handshake", "list"]
TOKENS = "/admin/api/tokens"


class Mute:
    """A program that is no server: its first word never comes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "mute.py"
        self.file.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
        self.allowed = ("--allow-executable", f"{sys.executable} {self.file}")
        stdio = {"command": sys.executable, "args": [str(self.file)]}
        self.record: Json = {"server_id": "mute", "transport": "stdio", "stdio": stdio}

    def runs(self, up: Up) -> bool:
        """Say whether it was started; the node itself has its name on its command line too."""
        return any(pid != up.process.pid for pid in traces(str(self.file)))


@asynccontextmanager
async def told(up: Up, token: str, path: str, body: Json | None = None) -> AsyncGenerator[Any]:
    """Ask for a trial step by step; give what returns the next event."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    async with up.http.post(up.url + path, headers=headers, json=body) as answer:
        assert answer.status == 200
        reader, waiting = SseReader(), list[Any]()

        async def event() -> Any:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not waiting:
                    waiting.extend(reader.feed(await answer.content.readany()))
            return waiting.pop(0)

        yield event


def read(event: Any) -> tuple[str, Json]:
    return event.event, json.loads(event.data)


async def tried(served: Plane, path: str, body: Json | None = None) -> Json:
    status, answer = await served.up.ask(
        "POST", f"{ADMIN}/servers/{path}", token=served.up.admin, body=body
    )
    assert status == 200, answer
    return answer


@pytest.mark.requirement("registry:grpc:node")
@pytest.mark.requirement("registry:grpc:work")
@pytest.mark.requirement("admin:servers:far-node")
async def test_a_control_plane_alone_has_its_node_try_servers(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, _):
        path = f"{ADMIN}/servers/notes"
        status, answer = await served.up.ask("POST", f"{path}/test", token=served.up.admin)
        assert (status, answer["error"]["code"]) == (503, "no_node")
        async with node(tmp_path / "node", served.grpc, token):
            trial = await tried(served, "notes/test")
            assert (trial["ok"], trial["tool_count"]) == (True, 6)
            assert [one["step"] for one in trial["steps"]] == STEPS
            assert (await tried(served, "notes/test?node=east"))["ok"]
            known = await served.up.get(f"{ADMIN}/tools?definitions=true")
            names = {one["name"]: one["definition"] for one in known["tools"]}
            assert "inputSchema" in names["mcp__notes__read_note"]
            draft = await tried(served, "test", notes(server_id="draft"))
            assert (draft["ok"], draft["tool_count"]) == (True, 6)
            shown = await served.up.get(f"{path}/tools")
            assert {one["name"] for one in shown["tools"]} >= {"mcp__notes__read_note"}
            status, answer = await served.up.ask(
                "POST", f"{path}/test?node=west", token=served.up.admin
            )
            assert (status, answer["error"]["code"]) == (404, "not_found")
            assert answer["error"]["message"] == "node: there is no node 'west'"


@pytest.mark.requirement("admin:servers:far-node")
async def test_the_command_line_tries_servers_by_a_node(tmp_path: Path):
    async with filled(tmp_path / "plane") as (served, token, _):
        at = ("--data-dir", str(served.up.data))
        async with node(tmp_path / "node", served.grpc, token):
            code, out, err = await run("servers", "test", "notes", *at)
            assert (code, "ok: 6 tools" in out) == (0, True), err
            code, out, err = await run("servers", "tools", "notes", "--node", "east", *at)
            assert (code, "mcp__notes__read_note" in out) == (0, True), err
            code, _, err = await run("servers", "test", "notes", "--node", "west", *at)
            assert (code, "there is no node 'west'" in err) == (1, True)


@pytest.mark.requirement("admin:servers:far-node")
async def test_a_server_is_tried_as_it_was_just_written(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, _),
        node(tmp_path / "node", served.grpc, token),
    ):
        assert (await tried(served, "notes/test"))["ok"]
        broken = notes()
        broken["stdio"]["args"] = ["-c", "no"]
        await served.put("servers", "notes", broken)
        trial = await tried(served, "notes/test")
        assert (trial["ok"], trial["steps"][-1]["ok"]) == (False, False)
        assert "add the whole line to [node] executables" in trial["error"]


async def started(event: Any) -> None:
    """Wait until the program of a trial runs."""
    for step in ("resolve", "start"):
        name, body = read(await event())
        assert (name, body["step"], body["ok"]) == ("step", step, True), body


@pytest.mark.requirement("registry:grpc:work")
async def test_a_trial_ends_when_its_node_is_killed(tmp_path: Path):
    program = Mute(tmp_path)
    async with filled(tmp_path / "plane") as (served, token, _):
        await served.put("servers", "mute", program.record)
        async with node(tmp_path / "node", served.grpc, token, *program.allowed) as up:
            path = f"{ADMIN}/servers/mute/test"
            async with told(served.up, served.up.admin, path) as event:
                await started(event)
                up.process.kill()
                await up.process.wait()
                name, trial = read(await event())
            assert (name, trial["ok"]) == ("result", False)
            assert "node 'east' left while it was at it" in trial["error"]
            assert [one["step"] for one in trial["steps"]] == ["resolve", "start"]


@pytest.mark.requirement("registry:grpc:work")
async def test_a_node_leaves_a_trial_that_nobody_waits_for(tmp_path: Path):
    program = Mute(tmp_path)
    async with (
        filled(tmp_path / "plane") as (served, token, _),
        node(tmp_path / "node", served.grpc, token, *program.allowed) as up,
    ):
        path = f"{ADMIN}/servers/test"
        async with told(served.up, served.up.admin, path, program.record) as event:
            await started(event)
            await until(lambda: program.runs(up))
        await until(lambda: not program.runs(up))
        assert (await tried(served, "notes/test"))["ok"]


@pytest.mark.timeout(120)
@pytest.mark.requirement("registry:grpc:work")
async def test_whoever_asks_one_replica_is_answered_by_the_node_of_another(tmp_path: Path):
    program = Mute(tmp_path)
    async with replicas(tmp_path) as made:
        served = await made.start("a", command=("registry", "serve"))
        asked = await made.start("b", command=("registry", "serve"))
        plane = Plane(served, (await served.next_lines(1))[0].rpartition(" ")[2])
        await plane.put("servers", "notes", notes())
        wanted = {"role": "node", "name": "east"}
        status, made_token = await served.ask("POST", TOKENS, token=served.admin, body=wanted)
        assert status == 201, made_token
        begun = node(tmp_path / "node", plane.grpc, made_token["token"], *program.allowed)
        async with begun as up:

            async def is_tried() -> bool:
                path = f"{ADMIN}/servers/notes/test?node=east"
                status, answer = await asked.ask("POST", path, token=served.admin)
                return status == 200 and answer["tool_count"] == 6

            await until(is_tried)
            path = f"{ADMIN}/servers/test"
            async with told(asked, served.admin, path, program.record) as event:
                await started(event)
            await until(lambda: not program.runs(up))
            async with told(asked, served.admin, path, program.record) as event:
                await started(event)
                up.process.kill()
                await up.process.wait()
                name, trial = read(await event())
            assert (name, trial["ok"]) == ("result", False)
            assert "node 'east' left while it was at it" in trial["error"]


class Late(Mute):
    """A server that says its first word when there is a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate = folder / "gate"
        wait = f"while not pathlib.Path({str(self.gate)!r}).exists(): time.sleep(0.05)"
        run_it = "runpy.run_module('bascule.demo.server', run_name='__main__')"
        lines = ("import pathlib, runpy, time", wait, run_it, "")
        self.file.write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.timeout(120)
@pytest.mark.requirement("registry:grpc:work-kept")
@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
async def test_a_trial_goes_on_when_the_replica_that_handed_it_out_ends(
    order: signal.Signals, tmp_path: Path
):
    program = Late(tmp_path)
    port = str(free_port())  # of the replica that is not there yet when the node comes
    async with replicas(tmp_path) as made, AsyncExitStack() as stack:
        first = await made.start("a", command=("registry", "serve"))
        there = Plane(first, (await first.next_lines(1))[0].rpartition(" ")[2])
        registry = await stack.enter_async_context(proxy(there.grpc, f":{port}"))
        await there.put("servers", "notes", notes())
        wanted = {"role": "node", "name": "east"}
        status, token = await first.ask("POST", TOKENS, token=first.admin, body=wanted)
        assert status == 201, token
        address = registry.removeprefix("http://")
        begun = node(tmp_path / "node", address, token["token"], *program.allowed)
        await stack.enter_async_context(begun)
        words = ("--grpc-port", port)
        asked = await made.start("b", *words, command=("registry", "serve"))

        async def is_tried() -> bool:
            """Say whether the second replica knows that it can ask the node."""
            path = f"{ADMIN}/servers/notes/test"
            return (await asked.ask("POST", path, token=first.admin))[0] == 200

        await until(is_tried)
        path = f"{ADMIN}/servers/test"
        async with told(asked, first.admin, path, program.record) as event:
            await started(event)
            first.process.send_signal(order)
            await first.process.wait()
            program.gate.touch()
            name, trial = read(await event())
            while name == "step":  # those that were told in between may be missing
                name, trial = read(await event())
        assert (name, trial["ok"], trial["tool_count"]) == ("result", True, 6), trial
        assert [one["step"] for one in trial["steps"]] == STEPS
