"""``bascule registry serve``: the control plane alone, honest about what it does not have."""

from __future__ import annotations

import json
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from grpc import aio

from bascule.wire.pb import registry_pb2
from tests.flow.up_process import Up, record, run, serving_by
from tests.waits import SOON_SECONDS

SERVERS = "/admin/api/mcp/servers"


def alone(data: Path, *words: str, **env: str) -> AbstractAsyncContextManager[Up]:
    return serving_by(("registry", "serve"), data, *words, **env)


@pytest.mark.requirement("cli:registry-serve")
async def test_records_tokens_and_the_page_are_served_without_a_node(tmp_path: Path):
    async with alone(tmp_path / "data") as up:
        assert (await up.next_lines(2))[1].startswith("The admin page is at ")
        body = {"server_id": "x", "transport": "stdio", "stdio": {"command": "true"}}
        status, answer = await up.ask("PUT", f"{SERVERS}/x", token=up.admin, body=body)
        assert status == 201, answer
        assert [one["server_id"] for one in (await up.get(SERVERS))["servers"]] == ["x"]
        assert (await up.get("/api/v1/identity"))["serves"] == ["approvals", "secrets"]
        assert (await up.ask("GET", "/healthz"))[1]["status"] == "ok"
        assert (await up.ask("GET", "/readyz"))[0] == 200
        assert (await up.get("/admin/api/nodes"))["nodes"] == []
        async with up.http.get(f"{up.url}/admin/") as page:
            assert (page.status, page.content_type) == (200, "text/html")
        async with up.http.get(
            f"{up.url}/metrics", headers={"Authorization": f"Bearer {up.admin}"}
        ) as figures:
            assert "mcp_ledger_rows" in await figures.text()
        code, out, err = await run("servers", "list", "--json", "--data-dir", str(up.data))
        assert (code, [one["server_id"] for one in json.loads(out)["servers"]]) == (0, ["x"]), err
        assert await up.end() == 0


@pytest.mark.requirement("cli:registry-serve")
async def test_what_needs_a_node_says_so_and_no_door_leads_to_a_tool(tmp_path: Path):
    records = tmp_path / "records"
    records.mkdir()
    (records / "x.toml").write_text(record("x"), encoding="utf-8")
    async with alone(tmp_path / "data", "--registry-dir", str(records)) as up:
        for method, path in (("POST", f"{SERVERS}/x/test"), ("GET", f"{SERVERS}/x/tools")):
            status, answer = await up.ask(method, path, token=up.admin)
            assert (status, answer["error"]["code"]) == (503, "no_node")
        token = await up.token("t")
        assert (await up.call(token, "x.list_notes"))[0] == 404
        doors = ("/api/v1/tools", "/mcp", "/v1/chat/completions", "/api/v1/guests")
        for path in doors:
            assert (await up.ask("POST", path, token=token, body={}))[0] == 404
        status, answer = await up.ask("POST", "/admin/api/mcp/effective", token=up.admin, body={})
        assert status == 200
        [server] = answer["servers"]
        assert (server["server_id"], server["listed"]) == ("x", False)


async def test_a_file_of_agents_is_said_to_be_unused(tmp_path: Path):
    agents = tmp_path / "agents.toml"
    agents.touch()
    async with alone(tmp_path / "data", BASCULE_AGENTS=str(agents)) as up:
        assert await up.end() == 0
        assert up.process.stderr is not None
        assert "agents: a control plane alone connects no servers" in (
            (await up.process.stderr.read()).decode()
        )


async def test_one_directory_is_served_by_one_process(tmp_path: Path):
    async with alone(tmp_path / "data") as up:
        words = ("registry", "serve", "--port", "0", "--data-dir", str(up.data))
        code, _, err = await run(*words)
        assert (code, "is served by another process, at " in err) == (1, True)


@pytest.mark.requirement("registry:grpc:list")
@pytest.mark.parametrize("command", [("registry", "serve"), ("up", "--empty", "--grpc")])
async def test_the_registry_answers_over_grpc(command: tuple[str, ...], tmp_path: Path):
    async with serving_by(command, tmp_path / "data") as up:
        lines = await up.next_lines(2)
        [address] = [line.split()[-1] for line in lines if "over gRPC at" in line]
        body = {"server_id": "x", "transport": "stdio", "stdio": {"command": "true"}}
        await up.ask("PUT", f"{SERVERS}/x", token=up.admin, body=body)
        async with aio.insecure_channel(address) as channel:
            call = channel.unary_unary(
                "/bascule.registry.v1.McpRegistryService/ListMcpServers",
                response_deserializer=registry_pb2.ListMcpServersResponse.FromString,
            )
            token = aio.Metadata(("authorization", f"Bearer {up.admin}"))
            found = await call(b"", metadata=token, timeout=SOON_SECONDS)
        assert [one.server_id for one in found.servers] == ["x"]
        assert await up.end() == 0


async def test_grpc_that_cannot_be_served_is_a_failure_for_whoever_ordered_it_alone(
    tmp_path: Path,
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with alone(tmp_path / "data", "--grpc-port", port) as up:
            assert (await up.ask("GET", "/healthz"))[0] == 200
            assert (await up.next_lines(1))[0].startswith("The admin page")  # and no word of gRPC
        words = ("--data-dir", str(tmp_path / "data"), "--port", "0", "--grpc", "--grpc-port", port)
        code, _, err = await run("registry", "serve", *words)
        assert code == 1
        assert f"cannot listen on 127.0.0.1:{port}" in err
