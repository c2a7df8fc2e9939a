"""Tools as agents get them: names, definitions, calls, errors, events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bascule.manager import (
    ManagerEvent,
    McpManager,
    McpServerConfig,
    McpToolAdapter,
    ToolCompleted,
    ToolFilter,
    ToolNamesCollided,
    ToolStarted,
    ToolText,
)
from bascule.testing import ScriptedServer, do, tool
from tests.manager.agents import stdio
from tests.waits import until

AKIA = "AKIA" + "Q3ZK7WXN5PLM2RTV"
SCHEMA = {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}


async def only(manager: McpManager) -> McpToolAdapter:
    [adapter] = await manager.get_tools()
    return adapter


@pytest.mark.requirement("manager:adapter:name", "manager:adapter:definition")
async def test_an_adapter_has_the_tools_definition_under_the_servers_name():
    server = ScriptedServer(
        behaviours={"query": "echo"},
        tools=[tool("query", description="Run SQL.", inputSchema=SCHEMA)],
    )
    async with McpManager([stdio("postgres", server)]) as manager:
        query = await only(manager)
        assert (query.name, query.server_name, query.tool_name) == (
            "postgres_query",
            "postgres",
            "query",
        )
        assert query.definition() == {
            "name": "postgres_query",
            "description": "Run SQL.",
            "parameters": SCHEMA,
        }


async def test_servers_come_as_configured_and_tools_by_name():
    server = ScriptedServer(behaviours={"b": "echo", "a": "echo", "c": "echo"})
    async with McpManager([stdio("z", server), stdio("m", server)]) as manager:
        first = [one.name for one in await manager.get_tools()]
        assert first == ["z_a", "z_b", "z_c", "m_a", "m_b", "m_c"]
        assert [one.name for one in await manager.get_tools()] == first


@pytest.mark.requirement("manager:adapter:call")
async def test_text_blocks_are_joined_into_one_string_with_a_note_for_media():
    blocks = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "two"}},
        {"type": "text", "text": "three"},
    ]
    server = ScriptedServer(behaviours={"t": do("fixed", result={"content": blocks})})
    async with McpManager([stdio("a", server)]) as manager:
        answer = await (await only(manager)).call()
        assert answer == "one\n[image: image/png, 2 bytes]\ntwo\nthree"
        assert isinstance(answer, str)
        assert (answer.is_error, answer.code) == (False, None)


async def test_a_result_without_text_says_so():
    server = ScriptedServer(behaviours={"t": do("fixed", result={"content": []})})
    async with McpManager([stdio("a", server)]) as manager:
        assert await (await only(manager)).call() == "[the tool returned no text]"


@pytest.mark.requirement("manager:adapter:error")
@pytest.mark.parametrize(
    ("step", "words", "code"),
    [
        (do("error", text="no such table"), "no such table", "mcp_tool_error"),
        (do("rpc_error", code=-32000, message="broken inside"), "broken inside", "mcp_tool_error"),
        (do("die", signal="KILL"), "", "mcp_outcome_unknown"),
    ],
)
async def test_an_error_of_the_server_is_a_result_and_no_exception(
    step: dict[str, object], words: str, code: str
):
    async with McpManager([stdio("a", ScriptedServer(behaviours={"t": step}))]) as manager:
        answer = await (await only(manager)).call({})
        assert answer.is_error
        assert answer.code == code
        assert words in answer
        assert answer != ""


@pytest.mark.requirement("manager:adapter:arguments")
async def test_arguments_are_a_mapping_or_json_text():
    async with McpManager([stdio("a")]) as manager:
        echo = await only(manager)
        assert await echo.call({"text": "mapping"}) == "mapping"
        assert await echo.call('{"text": "text"}') == "text"
        assert await echo.call(b'{"text": "bytes"}') == "bytes"
        assert not (await echo.call(None)).is_error
        assert not (await echo.call("")).is_error
        for wrong in ("{not json", "[1]", '{"a": 1, "a": 2}', '{"text": 7}'):
            answer = await echo.call(wrong)
            assert (answer.is_error, answer.code) == (True, "mcp_invalid_arguments")


@pytest.mark.requirement("manager:adapter:collision")
async def test_generic_names_of_two_servers_do_not_collide():
    server = ScriptedServer(behaviours={"query": "echo", "search": "echo"})
    async with McpManager([stdio("postgres", server), stdio("sentry", server)]) as manager:
        names = [one.name for one in await manager.get_tools()]
        assert names == ["postgres_query", "postgres_search", "sentry_query", "sentry_search"]


@pytest.mark.requirement("manager:adapter:collision")
async def test_names_that_would_meet_all_get_a_hash_and_a_warning():
    seen: list[ManagerEvent] = []
    one = stdio("a", ScriptedServer(behaviours={"b_c": "echo", "x": "echo"}))
    two = stdio("a_b", ScriptedServer(behaviours={"c": do("fixed", result={"content": []})}))
    async with McpManager([one, two], on_event=seen.append) as manager:
        tools = await manager.get_tools()
        names = {(each.server_name, each.tool_name): each.name for each in tools}
        assert names["a", "x"] == "a_x"
        assert names["a", "b_c"].startswith("a_b_c__0")
        assert names["a_b", "c"].startswith("a_b_c__0")
        assert len(set(names.values())) == 3
        await manager.get_tools()
        [warning] = [event for event in seen if isinstance(event, ToolNamesCollided)]
        assert (warning.name, warning.tools) == ("a_b_c", ("a/b_c", "a_b/c"))
        by_name = {each.name: each for each in tools}
        assert await by_name[names["a", "b_c"]].call({"text": "hi"}) == "hi"


@pytest.mark.requirement("manager:leaks")
async def test_arguments_and_results_are_scanned_for_leaks(tmp_path: Path):
    journal = tmp_path / "journal"
    server = ScriptedServer(
        behaviours={
            "echo": "echo",
            "leak": do("fixed", result={"content": [{"type": "text", "text": f"key: {AKIA}"}]}),
        },
        journal=journal,
    )
    async with McpManager([stdio("a", server)]) as manager:
        [echo, leak] = await manager.get_tools()
        assert AKIA not in await leak.call()
        await echo.call({"text": f"my key is {AKIA}"})
        assert AKIA not in journal.read_text(encoding="utf-8")
        assert "my key is" in journal.read_text(encoding="utf-8")


@pytest.mark.requirement("manager:truncation")
async def test_output_is_cut_at_fifty_thousand_bytes_with_a_marker():
    server = ScriptedServer(behaviours={"big": do("big", bytes=200_000)})
    async with McpManager([stdio("a", server)]) as manager:
        answer = await (await only(manager)).call()
        assert 49_000 < len(answer.encode()) <= 50_000
        assert answer.endswith(f"[truncated: {answer.truncated.shown} of 200000 bytes shown]")  # type: ignore[union-attr]
        assert not answer.is_error


@pytest.mark.requirement("manager:events")
async def test_every_call_is_told_at_its_start_and_its_end_without_values():
    seen: list[ManagerEvent] = []
    server = ScriptedServer(behaviours={"echo": "echo", "fail": "error"})
    manager = McpManager([stdio("a", server)], agent_id="main", on_event=seen.append)
    async with manager:
        [echo, fail] = await manager.get_tools()
        answer = await echo.call({"text": "a secret"})
        await fail.call({})
    starts = [event for event in seen if isinstance(event, ToolStarted)]
    ends = [event for event in seen if isinstance(event, ToolCompleted)]
    assert [(e.agent_id, e.server, e.tool, e.name) for e in starts] == [
        ("main", "a", "echo", "a_echo"),
        ("main", "a", "fail", "a_fail"),
    ]
    assert starts[0].arguments == {"text": "string(8)"}
    assert [one.call_id for one in starts] == [one.call_id for one in ends]
    assert [(one.ok, one.code) for one in ends] == [(True, None), (False, "mcp_tool_error")]
    assert (ends[0].request_id, ends[0].result) == (answer.request_id, "string(8)")
    assert all(one.duration_ms > 0 for one in ends)
    assert "a secret" not in repr(starts + ends)


async def test_a_listener_that_fails_harms_no_call(caplog: pytest.LogCaptureFixture):
    def fails(event: ManagerEvent) -> None:
        raise RuntimeError("the host's mistake")

    async with McpManager([stdio("a")], on_event=fails) as manager:
        assert await (await only(manager)).call({"text": "fine"}) == "fine"
    assert "the host's mistake" in caplog.text


@pytest.mark.requirement("manager:cancellation")
async def test_cancelling_a_worker_cancels_its_call_at_the_server(tmp_path: Path):
    seen: list[ManagerEvent] = []
    note = tmp_path / "cancelled"
    server = ScriptedServer(behaviours={"wait": do("sleep_until_cancelled", path=str(note))})
    async with McpManager([stdio("a", server)], on_event=seen.append) as manager:
        wait = await only(manager)
        worker = asyncio.create_task(wait.call({}))
        await until(lambda: any(isinstance(event, ToolStarted) for event in seen))
        for _ in range(20):
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        await until(note.exists)
    [end] = [event for event in seen if isinstance(event, ToolCompleted)]
    assert (end.ok, end.code, end.request_id) == (False, "cancelled", None)


async def test_only_the_tools_of_the_filter_are_given():
    server = ScriptedServer(behaviours={"read_a": "echo", "read_b": "echo", "write": "echo"})
    tools = ToolFilter(include=("read_*",), exclude=("*_b",))
    async with McpManager([stdio("a", server, tools=tools)]) as manager:
        assert [one.name for one in await manager.get_tools()] == ["a_read_a"]
        [status] = manager.statuses()
        assert status.tools == ("read_a",)


async def test_a_tool_that_vanished_is_a_tool_error():
    server = ScriptedServer(
        behaviours={"gone": "echo", "shrink": do("change_tools", tools=[tool("shrink")])}
    )
    async with McpManager([stdio("a", server)]) as manager:
        [gone, shrink] = await manager.get_tools()
        await shrink.call({})

        async def errs() -> ToolText:
            return await gone.call({"text": "x"})

        async with asyncio.timeout(10):
            while not (answer := await errs()).is_error:
                pass
        assert answer.code == "mcp_invalid_arguments"


def test_a_result_is_a_string_with_more_to_it():
    text = ToolText("hello", request_id="r-1")
    assert text == "hello"
    assert text + "!" == "hello!"
    assert (text.is_error, text.request_id, text.truncated) == (False, "r-1", None)
    assert ToolText("no", code="mcp_timeout").is_error


async def test_a_slow_call_ends_at_the_servers_own_limit():
    config = stdio("a", ScriptedServer(behaviours={"never": "never"}), timeout_ms=200)
    assert isinstance(config, McpServerConfig)
    async with McpManager([config]) as manager, asyncio.timeout(10):
        answer = await (await only(manager)).call({})
        assert (answer.is_error, answer.code) == (True, "mcp_timeout")
