"""Secrets at a node of its own process: given by the control plane, renewed, and kept in memory."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bascule.testing.server import ScriptedServer
from tests.flow.node_process import TASK, Plane, plane, until_state
from tests.flow.up_process import Up, run, serving_by
from tests.waits import until

SCRIPT = ScriptedServer(behaviours={"env": "env", "die": "die"})
#: What a node has to allow.
LINE = shlex.join([SCRIPT.command[0], *SCRIPT.command[1]])
#: Too short to be masked, so that the server can tell it.
OLD, NEW = "v1", "v2"
LONG = "c4nary-of-the-node-0123456789"


class Site:
    """A control plane with a server that needs secrets, and a node that starts it."""

    def __init__(self, served: Plane, up: Up, client: str) -> None:
        self.served = served
        self.up = up
        self.client = client

    async def process(self) -> tuple[str, str]:
        """Return the secret that the server's process was given, and its own temporary folder."""
        status, outcome = await self.up.call(self.client, "vault/env", text="x")
        assert (status, outcome["ok"]) == (200, True), outcome
        found = json.loads(outcome["text"])
        return found["env"]["TOKEN"], found["env"]["TMPDIR"]

    async def says(self) -> str:
        """Return why a call fails; nothing if it does not."""
        _, outcome = await self.up.call(self.client, "vault/env", text="x")
        return "" if outcome["ok"] else outcome["error"]["message"]

    async def lose_plane(self) -> None:
        self.served.up.process.kill()
        await self.served.up.process.wait()
        await until_state(self.up, "degraded")

    async def end_server(self) -> str:
        """End the server's process; return the folder that it had."""
        _, folder = await self.process()
        await self.up.call(self.client, "vault/die", text="x")
        return folder


async def put(served: Plane, name: str, value: str, *bind: str) -> None:
    """Set a secret at the control plane."""
    body = {"value": value, "bind": [{"server": one} for one in bind]}
    path = f"/admin/api/secrets/{name}"
    status, answer = await served.up.ask("PUT", path, token=served.up.admin, body=body)
    assert status in {200, 201}, answer


def record() -> dict[str, object]:
    env = {"TOKEN": "secret://token", "LONG": "secret://long"}
    stdio = {**SCRIPT.stdio, "env": env}
    return {
        "server_id": "vault",
        "transport": "stdio",
        "stdio": stdio,
        "allowed_tools": ["*"],
    }


@asynccontextmanager
async def site(folder: Path) -> AsyncGenerator[Site, None]:
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(plane(folder / "plane"))
        await served.put("servers", "vault", record())
        task = {**TASK, "mcp": {"enabled": True, "default_server_ids": ["vault"]}}
        await served.put("tasks", "t", task)
        for name, value in (("token", OLD), ("long", LONG)):
            await put(served, name, value, "vault")
        token, _ = await served.token("node", "--name", "east")
        client, _ = await served.token("client", "--task", "t")
        words = ("--registry", served.grpc, "--allow-executable", LINE)
        up = await stack.enter_async_context(
            serving_by(("node", "serve"), folder / "node", *words, BASCULE_TOKEN=token)
        )
        yield Site(served, up, client)


@pytest.mark.requirement("registry:grpc:node")
@pytest.mark.requirement("registry:grpc:secrets")
@pytest.mark.requirement("registry:grpc:secrets-told")
async def test_a_new_value_is_used_without_a_failed_call_and_an_unbound_one_no_more(
    tmp_path: Path,
):
    async with site(tmp_path) as here:
        assert (await here.process())[0] == OLD
        await put(here.served, "token", NEW)

        async def is_renewed() -> bool:
            return (await here.process())[0] == NEW  # whatever it finds, no call fails

        await until(is_renewed)
        code, out, _ = await run(
            *("audit", "search", "--event", "secret", "--json"),
            *("--data-dir", str(here.served.up.data)),
        )
        assert code == 0
        acts = [entry["event"] for entry in json.loads(out)["entries"]]
        read = [(one["by"], one["server_id"]) for one in acts if one["action"] == "read"]
        assert set(read) == {("east", "vault")}
        owner = ("--data-dir", str(here.served.up.data))
        code, _, err = await run("secrets", "unbind", "token", "--server", "vault", *owner)
        assert code == 0, err

        async def is_refused() -> bool:
            return "the secret 'token' is not bound to the server 'vault'" in await here.says()

        await until(is_refused)


@pytest.mark.requirement("sync:secrets-in-memory")
async def test_a_server_starts_again_with_its_secrets_while_the_control_plane_is_away(
    tmp_path: Path,
):
    async with site(tmp_path) as here:
        assert (await here.process())[0] == OLD
        await here.lose_plane()
        before = await here.end_server()

        async def is_back() -> bool:
            if await here.says():
                return False
            found, folder = await here.process()
            return found == OLD and folder != before

        await until(is_back)
        files = [file for file in here.up.data.rglob("*") if file.is_file()]
        contents = await asyncio.to_thread(lambda: [file.read_bytes() for file in files])
        assert files
        assert not any(LONG.encode() in content for content in contents)


@pytest.mark.requirement("sync:secrets-in-memory")
async def test_a_node_that_starts_without_its_control_plane_has_no_secrets_and_says_so(
    tmp_path: Path,
):
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(site(tmp_path))
        assert (await here.process())[0] == OLD
        grpc, data = here.served.grpc, here.up.data
        token, _ = await here.served.token("node", "--name", "west")
        words = ("--registry", grpc, "--allow-executable", LINE)
        west = tmp_path / "west"
        async with serving_by(("node", "serve"), west, *words, BASCULE_TOKEN=token) as up:
            assert await up.end() == 0
        await here.lose_plane()
        async with serving_by(("node", "serve"), west, *words, BASCULE_TOKEN=token) as up:
            _, outcome = await up.call(here.client, "vault/env", text="x")
            said = outcome["error"]["message"]
            assert "the secret 'long' is at the control plane, which cannot be asked" in said
            assert grpc not in said, "where the control plane is, is not for callers"
            port = grpc.rpartition(":")[2]
            again = await stack.enter_async_context(plane(here.served.up.data, "--grpc-port", port))
            assert again.grpc == grpc

            async def is_given() -> bool:
                return bool((await up.call(here.client, "vault/env", text="x"))[1]["ok"])

            await until(is_given)
        assert data.exists()
