"""Servers that start slowly or never, among others, as people meet them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import ServerUnavailable
from bascule.model.sandbox import Sandbox
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.node.settings import NodeSettings
from bascule.node.trial_steps import TrialSteps
from bascule.server import Server
from bascule.testing.server import ScriptedServer
from tests.flow.launchers import Launcher
from tests.flow.servers import record
from tests.waits import until

#: A list is made to wait for nobody for long, so that no test takes long.
HASTY = NodeSettings(grace_seconds=0.5, fetch_grace_seconds=0.5)
#: Nobody could sit through it: a test that ends did not wait for it.
FOR_EVER = {"connect_timeout_ms": 600_000, "start_timeout_ms": 600_000}
HANGING = ScriptedServer(at_start=["stop_reading"])


def names(tools: Any) -> set[str]:
    return {tool.server_id for tool in tools}


def fetched(launcher: Launcher, server_id: str = "time", **fields: Any) -> ServerRecord:
    """Return the record of a server that a launcher fetches before it starts it."""
    command, args = ScriptedServer().command
    return Server.stdio(server_id, str(launcher.program), command, *args, **fields)


async def all_listed(session: Session, *server_ids: str) -> None:
    async def listed() -> bool:
        return names(await session.tools()) == set(server_ids)

    await until(listed)


@pytest.mark.requirement("catalogue:not-waited-for", "pool:isolation")
@pytest.mark.parametrize(
    "hangs", [HANGING, ScriptedServer(on={"tools/list": "never"})], ids=["start", "list"]
)
async def test_twenty_servers_are_listed_and_called_beside_one_that_never_answers(
    hangs: ScriptedServer,
):
    well = [f"s{number}" for number in range(19)]
    limits = {**FOR_EVER, "list_timeout_ms": 600_000}
    records = [record(hangs, "hangs", budgets=limits), *(record(ScriptedServer(), s) for s in well)]
    settings = NodeSettings(grace_seconds=1.0)
    async with (
        Bridge.open(records, settings=settings) as bridge,
        bridge.session(server_ids=["hangs", *well]) as session,
        asyncio.timeout(60),
    ):
        for _ in range(3):
            tools = await session.tools()
            assert names(tools) == set(well)
            assert [warning.partition(":")[0] for warning in tools.warnings] == ["hangs"]
        for server_id in well:
            assert (await session.call(f"mcp__{server_id}__echo", {"text": "x"})).text == "x"
        wrong = await session.call("mcp__s3__no_such_tool", {})
        assert wrong.error is not None
        late = await session.call("mcp__hangs__echo", {"text": "x"}, timeout=0.2)
        assert late.error is not None
        assert late.error.code == "mcp_timeout"


@pytest.mark.requirement("catalogue:not-waited-for")
async def test_a_server_that_takes_a_while_is_there_as_soon_as_it_is_up(tmp_path: Path):
    launcher = Launcher(tmp_path / "bin")
    async with (
        Bridge.open(
            [fetched(launcher, "slow"), record(ScriptedServer(), "well")], settings=HASTY
        ) as bridge,
        bridge.session(server_ids=["slow", "well"]) as session,
    ):
        await all_listed(session, "well")
        await asyncio.to_thread(launcher.arrive)
        await all_listed(session, "well", "slow")
        assert (await session.call("mcp__slow__echo", {"text": "up"})).text == "up"


@pytest.mark.requirement("process:home:kept", "pool:start-timeout", "pool:starting-shown")
async def test_what_a_launcher_fetched_is_there_at_its_next_start(tmp_path: Path):
    launcher = Launcher(tmp_path / "bin")
    server = fetched(launcher)
    async with (
        Bridge.open([server], homes=tmp_path / "homes") as bridge,
        bridge.session(server_ids=["time"]) as session,
    ):
        late = await session.call("mcp__time__echo", {"text": "x"}, timeout=0.5)
        assert late.error is not None
        assert "fetching or starting" in late.error.message
        await until(lambda: "Downloading numpy" in (bridge.statuses()[0].starting or ""))
        assert bridge.statuses()[0].state == "connecting"
        await asyncio.to_thread(launcher.arrive)
        assert (await session.call("mcp__time__echo", {"text": "x"})).text == "x"
        assert bridge.statuses()[0].starting is None
    async with (
        Bridge.open([server], homes=tmp_path / "homes") as bridge,
        bridge.session(server_ids=["time"]) as session,
        asyncio.timeout(20),
    ):
        assert (await session.call("mcp__time__echo", {"text": "again"})).text == "again"


@pytest.mark.requirement("process:home:offline")
async def test_a_fetched_server_is_started_from_its_home_and_fetched_anew_if_that_fails(
    tmp_path: Path,
):
    launcher = Launcher(tmp_path / "bin")
    server = fetched(launcher)
    async with (
        Bridge.open([server], homes=tmp_path / "homes") as bridge,
        bridge.session(server_ids=["time"]) as session,
    ):
        for lost in (False, False, True):
            if lost:
                for file in (tmp_path / "homes").glob("time/*/home/fetched"):
                    file.unlink()
            starting = asyncio.create_task(bridge.reconnect("time"))
            if lost or not launcher.program.with_name("uvx.starts").exists():
                await until(lambda: "Downloading" in (bridge.statuses()[0].starting or ""))
                await asyncio.to_thread(launcher.arrive)
            async with asyncio.timeout(20):
                await starting
            assert (await session.call("mcp__time__echo", {"text": "x"})).text == "x"
    first, second, *tried, fetched_anew = launcher.offline
    assert (first, second, set(tried), fetched_anew) == (False, True, {True}, False)


@pytest.mark.requirement("process:home:offline")
async def test_a_fetched_server_starts_without_a_network_after_its_day_as_well(tmp_path: Path):
    launcher, homes = Launcher(tmp_path / "bin"), tmp_path / "homes"

    async def run() -> str:
        async with (
            Bridge.open([fetched(launcher)], homes=homes) as bridge,
            bridge.session(server_ids=["time"]) as session,
            asyncio.timeout(30),
        ):
            return (await session.call("mcp__time__echo", {"text": "here"})).text

    first = asyncio.create_task(run())
    await asyncio.to_thread(launcher.arrive)
    assert await first == "here"
    (note,) = homes.glob("time/*/ready")
    os.utime(note, (0, 0))
    launcher.cut_off()
    assert await run() == "here"
    asked = launcher.offline
    assert (asked[1], asked[-1]) == (False, True)  # something newer was looked for
    assert await run() == "here"
    assert set(launcher.offline[len(asked) :]) == {True}  # and is not at once again


async def test_a_program_that_fetches_nothing_is_not_tried_in_two_ways(tmp_path: Path):
    launcher = Launcher(tmp_path / "bin", "serve")
    starts: list[int] = []
    async with Bridge.open([fetched(launcher)], homes=tmp_path / "homes") as bridge:
        for gone in (False, True):
            starting = asyncio.create_task(bridge.reconnect("time"))
            if gone:
                with pytest.raises(ServerUnavailable, match="no network"):
                    await starting
            else:
                await asyncio.to_thread(launcher.arrive)
                await starting
                launcher.cut_off()
            starts.append(len(launcher.offline))
    assert starts[1] - starts[0] <= 2  # the second time for a server that dislikes the question


@pytest.mark.requirement("process:home:kept")
async def test_no_server_has_what_another_fetched(tmp_path: Path):
    launcher = Launcher(tmp_path / "bin")
    records = [fetched(launcher), fetched(launcher, "other")]
    async with (
        Bridge.open(records, homes=tmp_path / "homes", settings=HASTY) as bridge,
        bridge.session(server_ids=["time", "other"]) as session,
    ):
        first = asyncio.create_task(session.call("mcp__time__echo", {"text": "x"}))
        await until(lambda: "Downloading" in (bridge.statuses()[1].starting or ""))
        await asyncio.to_thread(launcher.arrive)
        assert (await first).text == "x"
        second = asyncio.create_task(session.call("mcp__other__echo", {"text": "y"}))
        await until(lambda: "Downloading" in (bridge.statuses()[0].starting or ""))
        await asyncio.to_thread(launcher.arrive)
        assert (await second).text == "y"


@pytest.mark.requirement("pool:starting-shown")
async def test_what_a_start_says_is_shown_without_the_secrets_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SOME_KEY", "hidden-0123456789")  # pragma: allowlist secret
    launcher = Launcher(tmp_path / "bin")
    server = fetched(launcher, env={"KEY": "${ENV:SOME_KEY}"})
    async with (
        Bridge.open([server, record(ScriptedServer(), "well")], settings=HASTY) as bridge,
        bridge.session(server_ids=["time", "well"]) as session,
    ):
        await all_listed(session, "well")
        await until(lambda: "Downloading numpy" in (bridge.statuses()[0].starting or ""))
        tools = await session.tools()
        late = await session.call("mcp__time__echo", {}, timeout=0.2)
        shown = [bridge.statuses()[0].starting, *tools.warnings, late.error and late.error.message]
        assert len(shown) == 3
        assert all(text and "Downloading numpy" in text for text in shown)
        assert not any("hidden-0123456789" in str(text) for text in shown)


@pytest.mark.requirement("pool:starting-shown")
async def test_a_fetch_of_its_own_is_a_step_that_says_how_far_it_is(tmp_path: Path):
    for name in ("uv", "uvx"):
        script = "#!/bin/sh\necho Downloading numpy >&2\nexec sleep 600\n"
        (tmp_path / name).write_text(script, "utf-8")
        (tmp_path / name).chmod(0o755)
    confined = Sandbox(level="best", required=True)
    server = replace(Server.stdio("time", str(tmp_path / "uvx"), "time"), sandbox=confined)
    async with Bridge.open([server], homes=tmp_path / "homes") as bridge:
        steps = TrialSteps(SYSTEM_CLOCK)
        trial = asyncio.create_task(bridge.inspect("time", steps=steps))
        await until(lambda: "Downloading numpy" in (bridge.statuses()[0].starting or ""))
        assert bridge.statuses()[0].starting == "fetching; it said: Downloading numpy"
        assert [step.step for step in steps.taken] == ["resolve"]
        steps.failed("here")
        assert steps.taken[-1].step == "fetch"
        trial.cancel()
        await asyncio.wait({trial}, timeout=10)


@pytest.mark.requirement("process:environment:outward")
async def test_a_proxys_password_is_masked_wherever_a_server_shows_it(
    monkeypatch: pytest.MonkeyPatch,
):
    address = "http://ann:w0rd-of-ann@127.0.0.1:9"  # pragma: allowlist secret
    monkeypatch.setenv("HTTPS_PROXY", address)
    server = ScriptedServer(behaviours={"env": "env"})
    async with (
        Bridge.open([record(server, "s")]) as bridge,
        bridge.session(server_ids=["s"]) as session,
    ):
        outcome = await session.call("mcp__s__env", {})
        assert outcome.ok, outcome.error
        assert "HTTPS_PROXY" in outcome.text
        assert "w0rd-of-ann" not in outcome.text
        assert "w0rd-of-ann" not in str(outcome.structured)
