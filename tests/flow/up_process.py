"""``bascule up`` as a real process, and short ways to ask it things."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.cli.served import command

Json = dict[str, Any]


def record(server_id: str, **env: str) -> str:
    """Make the file of a record that starts the demo server under another name."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in env.items()]
    return "\n".join(
        [
            f'server_id = "{server_id}"',
            'transport = "stdio"',
            'allowed_tools = ["list_*"]',
            "[stdio]",
            f"command = {json.dumps(sys.executable)}",
            'args = ["-m", "bascule.demo.server"]',
            "[stdio.env]",
            *lines,
        ]
    )


async def start(*words: str, module: str = "bascule", **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )


async def run(*words: str) -> tuple[int | None, str, str]:
    """Run a command that ends by itself; only a start needs a process of its own."""
    if words[0] not in {"up", "registry"} or "--dry-run" in words:
        done = await asyncio.to_thread(command, *words)
        return done.code, done.out, done.err
    process = await start(*words)
    try:
        async with asyncio.timeout(20):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        raise
    return process.returncode, out.decode(), err.decode()


class Up:
    """A process that serves, and a client for it."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path, said: list[str]) -> None:
        self.process = process
        self.data = data
        self.said = said
        self.url = said[-1].rpartition(" ")[2]
        setup = data / "setup-token"
        self.admin = setup.read_text(encoding="utf-8").strip() if setup.exists() else ""
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15))

    async def ask(
        self, method: str, path: str, *, token: str | None = None, body: Any = None
    ) -> tuple[int, Json]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self.http.request(method, self.url + path, headers=headers, json=body) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> Json:
        status, answer = await self.ask("GET", path, token=self.admin)
        assert status == 200, answer
        return answer

    async def token(self, task: str) -> str:
        words = ("tokens", "create", "--role", "client", "--task", task, "--json")
        code, out, err = await run(*words, "--data-dir", str(self.data))
        assert code == 0, err
        return json.loads(out)["token"]

    async def call(self, token: str, tool: str, /, **arguments: Any) -> tuple[int, Json]:
        body = {"name": tool, "arguments": arguments}
        return await self.ask("POST", "/api/v1/tools/call", token=token, body=body)

    async def next_lines(self, count: int) -> list[str]:
        """Read what it says after it serves."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            lines = [await self.process.stdout.readline() for _ in range(count)]
        return [line.decode().rstrip() for line in lines]

    async def end(self, order: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(order)
        async with asyncio.timeout(15):
            return await self.process.wait()


def serving(
    data: Path, *words: str, module: str = "bascule", **env: str
) -> AbstractAsyncContextManager[Up]:
    return serving_by(("up",), data, *words, module=module, **env)


@asynccontextmanager
async def serving_by(
    command: tuple[str, ...], data: Path, *words: str, module: str = "bascule", **env: str
) -> AsyncGenerator[Up]:
    place = ("--port", "0", "--data-dir", str(data))
    process = await start(*command, *place, *words, module=module, **env)
    said: list[str] = []
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(20):
            while not said or not said[-1].startswith("Bascule serves at"):
                line = await process.stdout.readline()
                assert line, (await process.stderr.read()).decode()
                said.append(line.decode().rstrip())
        up = Up(process, data, said)
        try:
            yield up
        finally:
            await up.http.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
