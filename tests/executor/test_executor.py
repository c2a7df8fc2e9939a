"""The executor as a host's loop uses it, over real subprocess and HTTP servers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bascule import Bridge, InvalidRecord, Server, SessionRefused
from bascule.executor import (
    ApiKey,
    ClientCredentials,
    McpConfig,
    McpExecutor,
    McpServerConfig,
    ToolCall,
    ToolExecutor,
    ToolKind,
    ToolResult,
)
from bascule.testing import ScriptedHttpServer, ScriptedServer, do, tool
from tests.flow.servers import lines_of

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def local(name: str, server: ScriptedServer, **fields: Any) -> McpServerConfig:
    command, args = server.command
    return McpServerConfig(
        name=name, transport="stdio", command=command, args=tuple(args), **fields
    )


def one_server(**behaviours: Any) -> McpConfig:
    return McpConfig(servers=(local("fs", ScriptedServer(behaviours=behaviours)),))


def call(name: str, arguments: Any = None, call_id: str = "call_1") -> ToolCall:
    text = "" if arguments is None else json.dumps(arguments)
    return ToolCall(id=call_id, name=name, arguments=text)


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [entry["function"]["name"] for entry in tools]


@pytest.mark.requirement("executor:protocol", "executor:execute")
async def test_a_loop_discovers_executes_and_gets_the_result_under_its_call_id():
    async with McpExecutor(one_server(echo="echo")) as executor:
        assert isinstance(executor, ToolExecutor)
        assert executor.kind is ToolKind.MCP
        await executor.discover(["fs"])
        assert executor.can_execute("fs_echo")
        result = await executor.execute(call("fs_echo", {"text": "hello"}, "call_7"))
    assert (result.call_id, result.output, result.is_error) == ("call_7", "hello", False)
    assert (result.metadata["server"], result.metadata["tool"]) == ("fs", "echo")


@pytest.mark.requirement("executor:discover", "names:python-doors")
async def test_discovered_tools_are_of_kind_mcp_and_carry_the_servers_name():
    listed = [tool("read", description="Read a file")]
    server = ScriptedServer(behaviours={"read": "echo"}, tools=listed)
    async with McpExecutor([local("fs", server)]) as executor:
        (found,) = await executor.client("fs").discover_tools()
    assert (found.name, found.kind, found.server) == ("fs_read", ToolKind.MCP, "fs")
    assert found.description == "Read a file"
    assert found.parameters == listed[0]["inputSchema"]
    assert found.openai()["function"]["name"] == "fs_read"


@pytest.mark.requirement("executor:discover:cached")
async def test_a_server_is_asked_for_its_tools_once():
    server = ScriptedServer(behaviours={"echo": "echo"}, ttl_ms=60_000)
    async with ScriptedHttpServer(server) as http:
        config = McpServerConfig(name="web", url=http.url)
        async with McpExecutor([config]) as executor:
            for _ in range(3):
                await executor.merge([], servers=["web"])
        assert http.count("tools/list") == 1


@pytest.mark.requirement("executor:discover:retried")
async def test_a_discovery_that_failed_once_is_tried_again():
    async with ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"})) as http:
        http.inject(do("http", status=500), method="tools/list")
        async with McpExecutor([McpServerConfig(name="web", url=http.url)]) as executor:
            assert names(await executor.merge([], servers=["web"])) == ["web_echo"]


@pytest.mark.requirement("executor:discover:retried")
async def test_a_server_that_was_down_is_asked_anew_by_the_next_request():
    http = ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"}))
    await http.start()
    url = http.url
    await http.stop()
    async with McpExecutor([McpServerConfig(name="web", url=url)]) as executor:
        tools, warnings = await executor.discover(["web"])
        assert tools == []
        assert warnings
        assert warnings[0].startswith("web: ")
        await http.start()
        async with asyncio.timeout(10):
            while not await executor.merge([], servers=["web"]):
                pass
    await http.stop()


@pytest.mark.requirement("executor:merge-on-reference")
async def test_only_servers_that_the_request_refers_to_are_merged(tmp_path: Path):
    started = tmp_path / "started"
    quiet = ScriptedServer(
        behaviours={"echo": "echo"}, on={"tools/list": do("ledger", path=str(started))}
    )
    used = ScriptedServer(behaviours={"read": "echo"})
    own = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    async with McpExecutor([local("fs", used), local("quiet", quiet)]) as executor:
        merged = await executor.merge([own, {"type": "mcp", "server_label": "fs"}])
        assert names(merged) == ["mine", "fs_read"]
        assert await executor.merge([own]) == [own]
    assert not started.exists()


async def test_a_request_that_refers_to_an_unknown_server_gets_a_warning_and_no_tools():
    async with McpExecutor(one_server(echo="echo")) as executor:
        tools, warnings = await executor.discover(["nowhere"])
        assert tools == []
        assert warnings == ["no server 'nowhere' (configured: fs)"]
        with pytest.raises(SessionRefused, match="nowhere"):
            executor.client("nowhere")


@pytest.mark.parametrize("entry", [{"type": "mcp"}, {"type": "mcp", "server_label": 5}])
async def test_a_reference_without_a_label_is_refused(entry: dict[str, Any]):
    async with McpExecutor(one_server(echo="echo")) as executor:
        with pytest.raises(InvalidRecord, match="server_label"):
            await executor.merge([entry])


async def test_a_callers_tool_with_the_name_of_an_mcp_tool_is_refused():
    own = {"type": "function", "function": {"name": "fs_echo"}}
    async with McpExecutor(one_server(echo="echo")) as executor:
        with pytest.raises(InvalidRecord, match="'fs_echo' is the name of an MCP tool"):
            await executor.merge([own], servers=["fs"])


@pytest.mark.requirement("executor:foreign-tool")
async def test_a_callers_own_tool_is_not_executable_here():
    async with McpExecutor(one_server(echo="echo")) as executor:
        await executor.discover(["fs"])
        assert not executor.can_execute("mine")
        assert not executor.can_execute("fs_unknown")
        assert not executor.can_execute("echo")
        result = await executor.execute(call("mine", {}))
    assert result.is_error
    assert result.metadata == {"code": "mcp_invalid_arguments", "retryable": "false"}
    assert json.loads(result.output)["error"]["code"] == "mcp_invalid_arguments"


@pytest.mark.requirement("executor:error-result", "names:spellings")
async def test_every_spelling_of_a_tool_is_understood_and_a_slip_is_told():
    async with McpExecutor(one_server(echo="echo")) as executor:
        await executor.discover(["fs"])
        for name in ("fs_echo", "mcp__fs__echo", "mcp.fs.echo", "fs.echo", "fs/echo"):
            assert executor.can_execute(name)
            assert not (await executor.execute(call(name, {"text": "x"}))).is_error
        assert not (await executor.execute(call("echo", {"text": "x"}))).is_error
        slip = await executor.execute(call("fs_ecoh", {}))
    assert "did you mean fs_echo?" in slip.output


@pytest.mark.requirement("executor:error-result")
@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("error", "mcp_tool_error"),
        (do("rpc_error", message="not today"), "mcp_tool_error"),
        (do("die"), "mcp_outcome_unknown"),
    ],
)
async def test_a_failed_call_is_a_result_marked_as_error(behaviour: Any, code: str):
    async with McpExecutor(one_server(bad=behaviour)) as executor:
        await executor.discover(["fs"])
        result = await executor.execute(call("fs_bad", {}))
    assert result.is_error
    assert result.metadata["code"] == code
    assert json.loads(result.output)["error"]["code"] == code


@pytest.mark.parametrize("text", ["{", "[1]", "null", '{"a": 1, "a": 2}', '"x"', "NaN"])
async def test_arguments_that_are_no_json_object_are_an_error_result(text: str, tmp_path: Path):
    ran = tmp_path / "ran"
    async with McpExecutor(one_server(echo=do("ledger", path=str(ran)))) as executor:
        await executor.discover(["fs"])
        result = await executor.execute(ToolCall(id="1", name="fs_echo", arguments=text))
    assert result.is_error
    assert result.metadata == {"code": "mcp_invalid_arguments", "retryable": "false"}
    error = json.loads(result.output)["error"]
    assert (error["code"], error["retryable"]) == ("mcp_invalid_arguments", False)
    assert error["message"].startswith("invalid arguments JSON: ")
    assert lines_of(ran) == []


async def test_no_arguments_at_all_are_an_empty_object():
    async with McpExecutor(one_server(echo=do("echo", text="fine"))) as executor:
        await executor.discover(["fs"])
        assert (await executor.execute(call("fs_echo"))).output == "fine"


async def test_the_calls_of_a_turn_run_at_once_and_their_results_stand_in_order(tmp_path: Path):
    gate = tmp_path / "gate"
    config = one_server(
        slow=do("gate", path=str(gate)), opener=do("ledger", path=str(gate)), echo="echo"
    )
    async with McpExecutor(config) as executor:
        await executor.discover(["fs"])
        turn = [call("fs_slow", {"text": "a"}, "1"), call("fs_opener", {"text": "b"}, "2")]
        async with asyncio.timeout(10):
            at_once = await executor.execute_all(turn)
            in_turn = await executor.execute_all(turn, parallel=False)
    assert [(r.call_id, r.output) for r in at_once] == [("1", "a"), ("2", "b")]
    assert in_turn == [
        ToolResult(
            call_id=r.call_id,
            output=r.output,
            metadata={**r.metadata, "request_id": later.metadata["request_id"]},
        )
        for r, later in zip(at_once, in_turn, strict=True)
    ]


@pytest.mark.requirement("executor:many-servers", "executor:config:static")
async def test_one_executor_serves_many_servers_by_name():
    config = McpConfig(
        servers=tuple(
            local(name, ScriptedServer(behaviours={"say": do("echo", text=name)}))
            for name in ("one", "two", "three")
        )
    )
    async with McpExecutor(config) as executor:
        merged = await executor.merge([], servers=["three", "one", "two"])
        assert names(merged) == ["three_say", "one_say", "two_say"]
        said = await executor.execute_all([call(f"{n}_say", {}) for n in ("one", "two", "three")])
    assert [result.output for result in said] == ["one", "two", "three"]


async def test_names_that_could_be_two_servers_tools_carry_a_hash():
    first = ScriptedServer(behaviours={"b_c": do("echo", text="first")})
    second = ScriptedServer(behaviours={"c": do("echo", text="second")})
    async with McpExecutor([local("a", first), local("a_b", second)]) as executor:
        found = names(await executor.merge([], servers=["a", "a_b"]))
        assert len(set(found)) == 2
        said = [(await executor.execute(call(name, {}))).output for name in found]
    assert said == ["first", "second"]


@pytest.mark.requirement("executor:sanitised", "hygiene:same-at-every-door")
async def test_results_are_cleaned_by_the_bridge_before_a_loop_sees_them():
    config = one_server(leak=do("echo", text=f"the key is {SECRET} \x1b[31mred"))
    async with McpExecutor(config) as executor:
        await executor.discover(["fs"])
        result = await executor.execute(call("fs_leak", {}))
    assert SECRET not in result.output
    assert "\x1b" not in result.output


@pytest.mark.requirement("executor:lazy")
async def test_nothing_is_connected_before_a_request_refers_to_a_server():
    async with ScriptedHttpServer(ScriptedServer()) as http:
        async with McpExecutor([McpServerConfig(name="web", url=http.url)]):
            pass
        assert http.connections_made == 0


@pytest.mark.requirement("executor:lazy")
async def test_a_warm_executor_discovers_in_the_background():
    async with ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"})) as http:
        config = McpServerConfig(name="web", url=http.url)
        async with McpExecutor([config], prewarm=True), asyncio.timeout(10):
            await http.saw("tools/list")


@pytest.mark.requirement("executor:disconnection", "executor:reconnection")
async def test_a_disconnection_in_the_middle_of_a_turn_spoils_one_call_and_not_the_turn():
    config = one_server(echo="echo", die=do("die"))
    async with McpExecutor(config) as executor:
        await executor.discover(["fs"])
        lost = await executor.execute(call("fs_die", {}))
        assert lost.is_error
        assert executor.can_execute("fs_echo")
        again = await executor.execute(call("fs_echo", {"text": "back"}))
    assert (again.is_error, again.output) == (False, "back")


@pytest.mark.requirement("executor:health")
async def test_health_is_shown_and_a_server_that_is_down_hinders_no_other():
    config = McpConfig(
        servers=(
            local("good", ScriptedServer(behaviours={"echo": "echo"})),
            McpServerConfig(name="down", command="no-such-command-of-bascule"),
        )
    )
    async with McpExecutor(config) as executor:
        assert executor.health() == {"good": "disconnected", "down": "disconnected"}
        merged = await executor.merge([], servers=["good", "down"])
        assert names(merged) == ["good_echo"]
        assert executor.health()["good"] == "connected"
        assert executor.health()["down"] in {"down", "reconnecting", "parked"}
        assert (await executor.execute(call("good_echo", {"text": "up"}))).output == "up"


@pytest.mark.requirement("executor:client:close")
async def test_closing_the_executor_closes_every_connection():
    async with ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"})) as http:
        executor = McpExecutor([McpServerConfig(name="web", url=http.url)])
        await executor.start()
        await executor.discover(["web"])
        await executor.close()
        result = await executor.execute(call("web_echo", {"text": "late"}))
        assert result.is_error
        assert http.count("tools/call") == 0


@pytest.mark.requirement("executor:auth", "executor:config")
async def test_an_api_key_goes_where_the_configuration_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EXECUTOR_KEY", "k-123456")
    async with ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"})) as http:
        servers = [
            McpServerConfig(name="bearer", url=http.url, auth=ApiKey(key="${ENV:EXECUTOR_KEY}")),
            McpServerConfig(
                name="header",
                url=http.url,
                headers={"X-Team": "blue"},
                auth=ApiKey(key="${ENV:EXECUTOR_KEY}", header="X-Api-Key"),
            ),
        ]
        async with McpExecutor(servers) as executor:
            await executor.discover(["bearer"])
            assert http.requests[-1].headers["Authorization"] == "Bearer k-123456"
            await executor.discover(["header"])
            assert http.requests[-1].headers["X-Api-Key"] == "k-123456"
            assert http.requests[-1].headers["X-Team"] == "blue"
    assert "k-123456" not in repr(servers)


@pytest.mark.requirement("executor:auth")
@pytest.mark.parametrize("key", ["github-token", "ghp_0123456789abcdef0123456789", "a b$$c"])
async def test_a_key_that_a_program_writes_itself_is_the_key(key: str):
    async with ScriptedHttpServer(ScriptedServer(behaviours={"echo": "echo"})) as http:
        auth = ApiKey(key=key, header="X-Api-Key")
        async with McpExecutor([McpServerConfig(name="web", url=http.url, auth=auth)]) as executor:
            await executor.discover(["web"])
        assert http.requests[-1].headers["X-Api-Key"] == key.replace("$$", "$")


@pytest.mark.requirement("executor:auth")
async def test_client_credentials_fetch_a_token_and_show_it():
    asked: list[dict[str, Any]] = []

    async def token(request: web.Request) -> web.Response:
        asked.append(dict(await request.post()))
        return web.json_response(
            {"access_token": "tok-1", "token_type": "Bearer", "expires_in": 60}
        )

    app = web.Application()
    app.router.add_post("/token", token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    auth = ClientCredentials(
        token_url=f"http://{host}:{port}/token", client_id="me", client_secret="hush-hush"
    )
    async with ScriptedHttpServer(ScriptedServer(), token="tok-1") as http:
        config = McpServerConfig(name="web", url=http.url, auth=auth)
        async with McpExecutor([config]) as executor:
            assert names(await executor.merge([], servers=["web"])) == ["web_echo"]
    await runner.cleanup()
    assert asked
    assert asked[0]["grant_type"] == "client_credentials"
    assert "hush-hush" not in repr(config)


@pytest.mark.requirement("call:same-answer:python")
async def test_on_a_shared_bridge_the_bridges_records_decide():
    command, args = ScriptedServer(behaviours={"read": "echo", "write": "echo"}).command
    record = Server.stdio("fs", command, *args, allow=["read"])
    async with Bridge.open([record]) as bridge:
        async with McpExecutor(["fs"], bridge=bridge) as executor:
            assert names(await executor.merge([], servers=["fs"])) == ["fs_read"]
            assert not executor.can_execute("fs_write")
        async with bridge.session(server_ids=["fs"]) as session:
            assert (await session.call("mcp__fs__read", {"text": "still open"})).ok


async def test_one_silent_server_does_not_hold_a_request_up_for_long():
    silent = ScriptedServer(on={"server/discover": "never", "initialize": "never"})
    servers = [local("good", ScriptedServer()), local("silent", silent)]
    async with McpExecutor(servers, discovery_seconds=1) as executor:
        tools, warnings = await executor.discover(["good", "silent"])
    assert [each.name for each in tools] == ["good_echo"]
    assert warnings == ["silent: its tools were not known within 1 s"]


@pytest.mark.parametrize(
    "entry", [{"allowed_tools": ["read"]}, {"require_approval": "always"}, {"allowed_tools": []}]
)
async def test_a_reference_that_asks_for_less_than_it_would_get_is_refused(entry: dict[str, Any]):
    async with McpExecutor(one_server(read="echo", write="echo")) as executor:
        with pytest.raises(InvalidRecord, match="would have no effect"):
            await executor.merge([{"type": "mcp", "server_label": "fs", **entry}])
        usual = {"type": "mcp", "server_label": "fs", "require_approval": "never"}
        assert names(await executor.merge([usual])) == ["fs_read", "fs_write"]


async def test_arguments_may_have_been_read_already():
    async with McpExecutor(one_server(echo="echo")) as executor:
        await executor.discover(["fs"])
        result = await executor.execute(ToolCall("1", "fs_echo", {"text": "hello"}))
    assert (result.output, result.is_error) == ("hello", False)


@pytest.mark.requirement("executor:health")
async def test_the_health_of_a_shared_bridge_is_shown_too():
    command, args = ScriptedServer().command
    server = Server.stdio("fs", command, *args, allow=["*"])
    async with Bridge.open([server]) as bridge, McpExecutor(["fs"], bridge=bridge) as executor:
        assert executor.health() == {"fs": "disconnected"}
        await executor.discover(["fs"])
        assert executor.health() == {"fs": "connected"}
