"""The executor over a bridge elsewhere: a real ``bascule up``, whose registry rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import tomli_w

from bascule import Bridge
from bascule.executor import McpExecutor, ToolCall, ToolExecutor
from bascule.testing import ScriptedServer, do
from tests.flow.up_process import Up, serving
from tests.waits import until


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    """A process with the servers ``fs`` and ``other``, and a task that has both."""
    waits = do("sleep_until_cancelled", path=str(tmp_path / "cancelled"))
    fs = ScriptedServer(
        behaviours={
            "read": "echo",
            "hidden": "echo",
            "slow": do("ledger", path=str(tmp_path / "begun"), then=waits),
            "big": do("big", bytes=200_000),
            "dies": "die",
        }
    )
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    allowed = {"fs": ["read", "slow", "big", "dies"], "other": ["*"]}
    for name, server in (("fs", fs), ("other", ScriptedServer())):
        command, args = server.command
        record = {
            "server_id": name,
            "transport": "stdio",
            "allowed_tools": allowed[name],
            "stdio": {"command": command, "args": list(args)},
        }
        (folder / f"{name}.toml").write_text(tomli_w.dumps(record), encoding="utf-8")
    words = ("--empty", "--registry-dir", str(folder))
    async with serving(tmp_path / "data", *words) as up:
        keys = {"mcp.enabled": "true", "mcp.default_server_ids": '["fs", "other"]'}
        body = {"task_id": "t", "config": keys}
        status, answer = await up.ask("PUT", "/admin/api/mcp/tasks/t", token=up.admin, body=body)
        assert status == 201, answer
        yield up


@pytest.fixture
async def executor(up: Up) -> AsyncIterator[McpExecutor]:
    async with (
        Bridge.connect(up.url, token=await up.token("t")) as bridge,
        McpExecutor(["fs", "other"], bridge=bridge) as executor,
    ):
        yield executor


async def test_a_loop_works_with_a_process_elsewhere_and_its_registry_rules(executor: McpExecutor):
    assert isinstance(executor, ToolExecutor)
    merged = await executor.merge([{"type": "mcp", "server_label": "fs"}])
    names = [entry["function"]["name"] for entry in merged]
    assert names == ["fs_big", "fs_dies", "fs_read", "fs_slow"]
    assert (executor.can_execute("fs_hidden"), executor.can_execute("other_echo")) == (False, False)
    result = await executor.execute(ToolCall("c1", "fs_read", '{"text": "hello"}'))
    assert (result.call_id, result.output, result.is_error) == ("c1", "hello", False)
    assert executor.health() == {"fs": "unknown", "other": "unknown"}


async def test_results_elsewhere_are_cut_and_losses_are_results(executor: McpExecutor):
    await executor.discover(["fs", "other"])
    big = await executor.execute(ToolCall("1", "fs_big"))  # before its server dies
    lost, well = await executor.execute_all(
        [ToolCall("2", "fs_dies"), ToolCall("3", "other_echo", "{}")]
    )
    assert (big.is_error, big.metadata["code"]) == (False, "mcp_output_too_large")
    assert json.loads(big.output)["truncated"]["total"] == 200_000
    assert (lost.is_error, lost.metadata["code"]) == (True, "mcp_outcome_unknown")
    assert not well.is_error
    again = await executor.execute(ToolCall("4", "fs_read", {"text": "back"}))
    assert again.output == "back"


async def test_a_cancelled_call_is_cancelled_at_the_server_elsewhere(
    executor: McpExecutor, tmp_path: Path
):
    await executor.discover(["fs"])
    calling = asyncio.create_task(executor.execute(ToolCall("1", "fs_slow")))
    await until((tmp_path / "begun").exists)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until((tmp_path / "cancelled").exists)
