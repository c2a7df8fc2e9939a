"""MCP Inspector's command line: a process for each question."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.doors.gateway.clients.steps import Client, main, nothing


class Inspector(Client):
    def connected(self) -> AbstractAsyncContextManager[None]:
        return nothing()

    async def names(self) -> list[str]:
        return [tool["name"] for tool in (await self._asked("tools/list"))["tools"]]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        words = ("--tool-name", name, "--tool-args-json", json.dumps(arguments))
        result = await self._asked("tools/call", *words)
        text = "".join(block["text"] for block in result["content"])
        if result.get("isError"):
            raise RuntimeError(text)
        return text

    async def cancelled(self, name: str) -> str | None:
        """End the process: that cancels a call in the modern generation alone."""
        return await super().cancelled(name) if self.task.era == "modern" else None

    async def _asked(self, method: str, *words: str) -> dict[str, Any]:
        programs = self.task.programs or {}
        header = f"Authorization: {self.task.headers['Authorization']}"
        process = await asyncio.create_subprocess_exec(
            *(programs["node"], programs["inspector"], "--cli", self.task.url),
            *("--transport", "http"),
            *("--protocol-era", self.task.era, "--header", header, "--format", "json"),
            *("--method", method, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        if not out:
            raise RuntimeError(err.decode())
        return json.loads(out)["result"]


if __name__ == "__main__":
    main(Inspector)
