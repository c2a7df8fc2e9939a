"""``bascule up`` told to stop while MCP clients call and listen."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.testing.server import ScriptedServer, do
from tests.doors.gateway.stream_site import SUBSCRIPTION, Peer, Stream
from tests.flow.servers import lines_of
from tests.flow.up_process import Up, serving
from tests.waits import SOON_SECONDS, until

Json = dict[str, Any]
RECORDS = "/admin/api/mcp"


class Scene:
    """A process, its clients, and a server whose calls wait for a file."""

    def __init__(self, up: Up, folder: Path) -> None:
        self.up = up
        self.port = int(up.url.rpartition(":")[2])
        self.streams: list[Stream] = []
        self.gate = folder / "gate"
        self.journal = folder / "journal"

    async def prepared(self) -> str:
        """Make the server and a task for it; return a token."""
        gated = do("gate", path=self.gate)
        script = ScriptedServer(
            behaviours={"gated": gated, "steps": do("progress", count=1, then=gated)},
            journal=self.journal,
        )
        server = {"server_id": "s", "transport": "stdio", "stdio": script.stdio}
        await self._write("servers", {**server, "allowed_tools": ["*"]})
        task = {"task_id": "t", "mcp": {"enabled": True, "default_server_ids": ["s"]}}
        await self._write("tasks", task)
        return await self.up.token("t")

    async def _write(self, kind: str, body: Json) -> None:
        up = self.up
        status, answer = await up.ask("POST", f"{RECORDS}/{kind}", token=up.admin, body=body)
        assert status in (200, 201), answer

    async def peers(self) -> list[Peer]:
        token = await self.prepared()
        return [await Peer(self, token).initialized(), Peer(self, token, modern=True)]

    async def reached(self, calls: int) -> None:
        """Wait until the server has so many calls."""
        await until(lambda: "".join(lines_of(self.journal)).count('"tools/call"') == calls)

    def calls(self, peers: list[Peer]) -> list[asyncio.Task[Stream]]:
        """Make calls that are answered with a stream from their first step on, and others."""
        return [
            asyncio.create_task(peer.request("tools/call", **call(name)))
            for name in ("steps", "gated")
            for peer in peers
        ]

    async def refuses(self) -> bool:
        """Say whether nobody is let in any more."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return True
        writer.transport.abort()
        return False


@asynccontextmanager
async def scene(folder: Path) -> AsyncGenerator[Scene]:
    async with serving(folder / "data", "--empty") as up:
        assert up.process.stderr is not None
        said = asyncio.create_task(up.process.stderr.read())
        found = Scene(up, folder)
        try:
            yield found
        finally:
            for stream in found.streams:
                stream.close()
            if up.process.returncode is None:
                up.process.kill()
            async with asyncio.timeout(SOON_SECONDS):
                await said


def call(name: str) -> Json:
    meta = {"progressToken": 1}
    return {"name": f"mcp__s__{name}", "arguments": {"text": "done"}, "_meta": meta}


async def ends_well(peer: Peer, stream: Stream) -> None:
    """Read the end of a listening stream: with a result in the modern generation."""
    if peer.modern:
        last = await stream.next()
        assert last is not None
        assert last["result"]["resultType"] == "complete"
        assert last["result"]["_meta"][SUBSCRIPTION] == last["id"]
    assert await stream.next() is None


@pytest.mark.requirement("gateway:drain")
async def test_calls_finish_and_listeners_end_in_order_when_the_process_is_told_to_stop(
    tmp_path: Path,
):
    async with scene(tmp_path) as site:
        peers = await site.peers()
        listening = [await peer.listening() for peer in peers]
        calls = site.calls(peers)
        await site.reached(4)
        site.up.process.send_signal(signal.SIGTERM)
        for peer, stream in zip(peers, listening, strict=True):
            await ends_well(peer, stream)
        await until(site.refuses)
        site.gate.touch()
        for asked in calls:
            ended = await (await asked).result()
            assert ended["result"]["content"] == [{"type": "text", "text": "done"}], ended
        async with asyncio.timeout(SOON_SECONDS):
            assert await site.up.process.wait() == 0


@pytest.mark.requirement("gateway:drain")
async def test_a_second_word_ends_calls_that_would_go_on_and_their_clients_are_told(
    tmp_path: Path,
):
    async with scene(tmp_path) as site:
        peers = await site.peers()
        stream = await peers[1].listening()
        calls = site.calls(peers)
        await site.reached(4)
        site.up.process.send_signal(signal.SIGTERM)
        await ends_well(peers[1], stream)
        assert site.up.process.returncode is None
        site.up.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SOON_SECONDS):
            assert await site.up.process.wait() == 0
        ended = [await (await asked).result() for asked in calls]
        assert {one["error"]["data"]["code"] for one in ended} == {"shutting_down"}
        assert [one["id"] for one in ended] == [2, 2, 3, 3]
