"""Trials of servers and drafts by a real node: their steps, what they say, and what stays."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bascule.app.local_node import TRIAL_LINES, LocalNode
from bascule.clock import SYSTEM_CLOCK
from bascule.node.assembly import Bridge
from bascule.testing import ScriptedHttpServer, ScriptedServer
from tests.control.api.desk import ADMIN, SERVERS, Desk, open_desk, scope_of
from tests.flow.launchers import Launcher
from tests.flow.processes import traces
from tests.waits import SOON_SECONDS, until

DRAFT = f"{SERVERS}/test"
LOCAL = ["resolve", "start", "handshake", "list"]
REMOTE = ["resolve", "connect", "handshake", "list"]
TALKS = "import sys; [print('line', n, file=sys.stderr) for n in range(50)]; sys.exit('the end')"
Json = dict[str, Any]


class Site:
    """A registry's API with a node behind it that follows on demand."""

    def __init__(self, desk: Desk, bridge: Bridge) -> None:
        self.desk = desk
        self.bridge = bridge

    async def stored(self, record: Json) -> str:
        """Write a record, and have the node know of it."""
        answer = await self.desk.ask("POST", SERVERS, record)
        assert answer.status == 201, answer.body
        await self.bridge.apply(self.desk.service.snapshot())
        return f"{SERVERS}/{record['server_id']}/test"

    async def tried(self, path: str, *body: Json) -> Json:
        answer = await self.desk.ask("POST", path, *body)
        assert answer.status == 200, answer.body
        return answer.json


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Bridge.open([], secrets={"token": "s3cret-v4lue"}) as bridge:
        node = LocalNode(bridge, SYSTEM_CLOCK, seconds=SOON_SECONDS)
        async with open_desk(node) as desk:
            yield Site(desk, bridge)


def local(**stdio: Any) -> Json:
    return {"server_id": "fs", "transport": "stdio", "stdio": stdio, "allowed_tools": ["*"]}


def remote(url: str, **http: Any) -> Json:
    return {"server_id": "far", "transport": "http", "http": {"url": url, **http}}


def program(code: str, *args: str) -> Json:
    return local(command=sys.executable, args=["-c", code, *args])


def words(trial: Json) -> list[tuple[str, bool]]:
    return [(one["step"], one["ok"]) for one in trial["steps"]]


@pytest.mark.requirement("admin:servers:test-steps", "admin:servers:test")
async def test_a_trial_shows_each_step_and_what_was_there_before(site: Site):
    path = await site.stored(local(**ScriptedServer().stdio))
    first = await site.tried(path)
    again = await site.tried(path)

    assert words(first) == words(again) == [(step, True) for step in LOCAL]
    assert all(one["duration_ms"] > 0 for one in first["steps"])
    assert [one["message"] for one in again["steps"]] == [*["already connected"] * 3, "1 tools"]


@pytest.mark.requirement("admin:servers:test-steps")
async def test_a_trial_of_a_remote_server_connects(site: Site):
    async with ScriptedHttpServer(ScriptedServer()) as server:
        trial = await site.tried(await site.stored(remote(server.url)))
    assert words(trial) == [(step, True) for step in REMOTE]


SILENT = {"initialize": "never", "server/discover": "never"}
CLOSED = "http://127.0.0.1:9/mcp"
FAILURES: dict[str, tuple[Json, list[str], str]] = {
    "a secret that is not there": (
        local(command="true", env={"T": "secret://nobody"}),
        LOCAL[:1],
        "secret",
    ),
    "a program that is not there": (local(command="/no/such/program"), LOCAL[:2], "/no/such"),
    "a folder that is not there": (
        local(command="/bin/true", cwd="/no/such/folder"),
        LOCAL[:2],
        "/no/such/folder",
    ),
    "a program that ends": (program(TALKS), LOCAL[:3], "the end"),
    "a server that does not list": (
        local(**ScriptedServer(on={"tools/list": {"kind": "error", "code": -32000}}).stdio),
        LOCAL,
        "tools/list failed",
    ),
    "a port without a server": (remote(CLOSED), REMOTE[:2], "127.0.0.1"),
    "an address that the rules forbid": (remote("http://192.0.2.1/mcp"), REMOTE[:1], "egress"),
}


@pytest.mark.requirement("admin:servers:test-steps")
@pytest.mark.parametrize(
    ("what", "drafted"),
    [*((what, True) for what in FAILURES), ("a program that ends", False)],
)
async def test_a_trial_ends_at_the_step_that_failed_and_says_why(
    site: Site, what: str, drafted: bool
):
    record, steps, why = FAILURES[what]
    trial = await (site.tried(DRAFT, record) if drafted else site.tried(await site.stored(record)))
    *before, last = steps
    assert words(trial) == [*((step, True) for step in before), (last, False)]
    assert why in trial["steps"][-1]["message"]
    assert (trial["ok"], trial["error"]) == (False, trial["steps"][-1]["message"])


@pytest.mark.requirement("admin:servers:test-steps")
@pytest.mark.parametrize("drafted", [True, False], ids=["draft", "stored"])
async def test_a_trial_shows_the_last_lines_of_standard_error_without_secrets(
    site: Site, drafted: bool
):
    code = "import os, sys; print('the token is', os.environ['T'], file=sys.stderr);" + TALKS[12:]
    record = program(code.replace("range(50)", "range(15)"))
    record["stdio"]["env"] = {"T": "secret://token"}
    trial = await (site.tried(DRAFT, record) if drafted else site.tried(await site.stored(record)))
    assert trial["stderr"][-2:] == ["line 14", "the end"]
    assert trial["stderr"][0].startswith("the token is")
    assert "s3cret-v4lue" not in json.dumps(trial)


async def test_no_more_than_some_lines_are_shown(site: Site):
    trial = await site.tried(DRAFT, program(TALKS))
    assert len(trial["stderr"]) == TRIAL_LINES
    assert trial["stderr"][-1] == "the end"


@pytest.mark.requirement("admin:servers:test-draft")
async def test_nothing_of_a_draft_stays(site: Site, tmp_path: Path):
    starts = tmp_path / "starts"
    draft = local(**ScriptedServer(starts=starts).stdio)
    trial = await site.tried(DRAFT, draft)

    assert (trial["ok"], trial["tools"]) == (True, ["echo"])
    assert words(trial) == [(step, True) for step in LOCAL]
    assert traces(str(starts)) == []
    assert (site.bridge.statuses(), site.bridge.known_tools()) == ([], {})
    assert desk_is_empty(site.desk)


def desk_is_empty(desk: Desk) -> bool:
    return desk.service.view.revision == 0 and not desk.service.snapshot().servers


@pytest.mark.requirement("admin:servers:test-draft")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_the_process_of_a_draft_ends_when_whoever_asked_hangs_up(
    site: Site, tmp_path: Path, accept: str
):
    starts = tmp_path / "starts"
    silent = ScriptedServer(starts=starts, on=SILENT)
    body = json.dumps(local(**silent.stdio)).encode()
    headers = {
        **site.desk.headers["admin"],
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": accept,
    }
    hung_up, asked = asyncio.Event(), False

    async def receive() -> Json:
        nonlocal asked
        if asked:
            await hung_up.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(_message: Any) -> None: ...

    scope = scope_of("POST", DRAFT, headers)
    running = asyncio.ensure_future(site.desk.app(scope, receive, send))
    await until(starts.exists)
    hung_up.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.wait({running})
    assert traces(str(starts)) == []


@pytest.mark.requirement("admin:servers:test-draft")
async def test_a_draft_that_is_fetched_first_has_longer_to_answer(tmp_path: Path):
    launcher = Launcher(tmp_path / "bin")
    command, args = ScriptedServer().command
    draft = local(command=str(launcher.program), args=[command, *args])
    async with Bridge.open([]) as bridge:
        node = LocalNode(bridge, SYSTEM_CLOCK, 0.01, fetch_seconds=SOON_SECONDS)
        async with open_desk(node) as desk:
            trying = asyncio.ensure_future(Site(desk, bridge).tried(DRAFT, draft))
            await asyncio.to_thread(launcher.arrive)
            trial = await trying
    assert trial["ok"], trial["error"]


@pytest.mark.requirement("admin:servers:test-draft")
async def test_a_draft_that_does_not_answer_ends_at_the_deadline(tmp_path: Path):
    starts = tmp_path / "starts"
    silent = ScriptedServer(starts=starts, on=SILENT)
    async with Bridge.open([]) as bridge, open_desk(LocalNode(bridge, SYSTEM_CLOCK, 0.5)) as desk:
        trial = await Site(desk, bridge).tried(DRAFT, local(**silent.stdio))
        assert (words(trial)[-1], trial["error"]) == (
            ("handshake", False),
            "no answer within 0.5 s",
        )
        assert traces(str(starts)) == []


@pytest.mark.requirement("admin:servers:test-steps")
async def test_a_stream_tells_each_step_as_it_ends_and_then_the_result(site: Site):
    answer = await site.desk.ask(
        "POST", DRAFT, program(TALKS), headers={"Accept": "text/event-stream"}
    )
    told = [part.split("\n") for part in answer.body.decode().strip().split("\n\n")]
    names = [lines[0].removeprefix("event: ") for lines in told]
    bodies = [json.loads(lines[1].removeprefix("data: ")) for lines in told]
    assert names == [*["step"] * 5, "result"]  # it is started once more, in the legacy way
    assert bodies[-1]["steps"] == bodies[2:-1]
    assert bodies[-1]["stderr"][-1] == "the end"


@pytest.mark.requirement("admin:servers:test-draft")
async def test_a_draft_may_not_send_a_secret_where_nobody_let_it_go(site: Site):
    async with ScriptedHttpServer(ScriptedServer()) as server:
        draft = remote(server.url, auth_ref="secret://token")
        answer = await site.desk.ask("POST", DRAFT, draft, role="operator")
        assert (answer.status, answer.json["error"]["code"]) == (403, "pair_not_accepted")
        assert server.requests == []
    assert (await site.desk.ask("GET", f"{ADMIN}/proposals")).json == {"proposals": []}


@pytest.mark.requirement("admin:servers:test-draft")
async def test_masked_values_of_a_draft_stay_with_the_target_they_were_given_for(site: Site):
    async with (
        ScriptedHttpServer(ScriptedServer()) as home,
        ScriptedHttpServer(ScriptedServer()) as thief,
    ):
        await site.stored(remote(home.url, headers={"X-Key": "k3y-of-far"}))
        masked = {"X-Key": "***"}
        moved = await site.desk.ask("POST", DRAFT, remote(thief.url, headers=masked))
        same = await site.tried(DRAFT, remote(home.url, headers=masked))

        assert (moved.status, moved.json["error"]["code"]) == (422, "invalid_record")
        assert same["ok"]
        assert {one.headers["X-Key"] for one in home.requests} == {"k3y-of-far"}
        assert thief.requests == []


@pytest.mark.requirement("admin:servers:test-draft")
async def test_a_draft_is_held_to_every_check_of_a_write(site: Site):
    wrong = await site.desk.ask("POST", DRAFT, {"server_id": "fs", "enabled": "perhaps"})
    assert (wrong.status, wrong.json["error"]["code"]) == (422, "invalid_record")
    viewer = await site.desk.ask("POST", DRAFT, local(command="true"), role="viewer")
    assert viewer.status == 403
