"""Records of servers for tests of the page: real ones, and taken away again."""

from __future__ import annotations

import sys
from typing import Any

from bascule.testing.server import ScriptedServer
from tests.browser.site import Site

REGISTRY = "/admin/api/mcp"
SERVERS = f"{REGISTRY}/servers"


def notes(server_id: str, **fields: Any) -> dict[str, Any]:
    """A record of one more server of notes."""
    stdio = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
    return {"server_id": server_id, "transport": "stdio", "stdio": stdio, **fields}


def scripted(server_id: str, server: ScriptedServer, **fields: Any) -> dict[str, Any]:
    """A record of a server that does as it is told."""
    command, args = server.command
    stdio = {"command": command, "args": list(args)}
    return {"server_id": server_id, "transport": "stdio", "stdio": stdio, **fields}


class Register:
    """Puts records into the registry of a site, and takes them away when nobody looks any more."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._made: list[str] = []

    async def __call__(self, record: dict[str, Any], kind: str = "servers") -> str:
        """Write a record; return its address."""
        site, many = self._site, f"{REGISTRY}/{kind}"
        status, answer = await site.ask("POST", many, token=site.admin, body=record)
        assert status == 201, answer
        return self.knows(f"{many}/{record['server_id' if kind == 'servers' else 'task_id']}")

    def knows(self, address: str) -> str:
        """Take away also what a test makes by itself."""
        self._made.append(address)
        return address

    async def clear(self) -> None:
        for address in reversed(self._made):
            await self._site.ask("DELETE", address, token=self._site.admin)
