"""What a route of the gateway shows: all servers under model-facing names, or one under its own."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from bascule.model.name import model_name
from bascule.model.server import SERVER_ID_PATTERN
from bascule.model.session import SessionRequest
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.session import Session

#: How long whoever opens a session waits for the server to say what it has to say.
PATIENCE_SECONDS = 3.0


class View(Protocol):
    """One route."""

    @property
    def route(self) -> str:
        """Return the route's own name: sessions and cursors of one are of no use at another."""
        ...

    @property
    def requests(self) -> tuple[SessionRequest, ...]:
        """Return how the route itself narrows."""
        ...

    def is_for(self, server_id: str) -> bool:
        """Say whether the route is that of a server alone."""
        ...

    def is_there(self, session: Session) -> bool:
        """Say whether a session has anything to do with the route."""
        ...

    def shown(self, tool: ToolDescriptor) -> str:
        """Return a tool's name at this route."""
        ...

    def meant(self, name: str, session: Session) -> str:
        """Return the model-facing name of the tool that a name means here."""
        ...

    async def instructions(self, session: Session) -> str | None:
        """Return what servers want a model to know."""
        ...


class AllServers:
    """``/mcp``: everything that the task allows, under the names that models see."""

    route = "/mcp"
    requests: tuple[SessionRequest, ...] = ()

    def is_for(self, server_id: str) -> bool:
        del server_id
        return False

    def is_there(self, session: Session) -> bool:
        del session
        return True

    def shown(self, tool: ToolDescriptor) -> str:
        return tool.model_name

    def meant(self, name: str, session: Session) -> str:
        del session
        return name

    async def instructions(self, session: Session) -> str | None:
        """Return those that are known now, quoted, under a heading with each server's name."""
        parts = [
            f"# Server {server}, in its own words\n{_quoted(text)}"
            for server, text in session.instructions().items()
        ]
        return "\n\n".join(parts) or None


class OneServer:
    """``/mcp/servers/{id}``: one server under its own names, for clients of a single server."""

    def __init__(self, server_id: str) -> None:
        self.server_id = server_id
        self.route = f"/mcp/servers/{server_id}"
        self.requests = (SessionRequest(server_ids=(server_id,)),)

    def is_for(self, server_id: str) -> bool:
        return server_id == self.server_id

    def is_there(self, session: Session) -> bool:
        return self.server_id in session.effective.servers

    def shown(self, tool: ToolDescriptor) -> str:
        return tool.name

    def meant(self, name: str, session: Session) -> str:
        record = session.effective.registry.servers.get(self.server_id)
        return name if record is None else model_name(record.tool_namespace, name)

    async def instructions(self, session: Session) -> str | None:
        """Return the server's own words; one that is on its way is waited for, for a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await session.look_up(self.server_id)
        return session.instructions().get(self.server_id)


ALL_SERVERS = AllServers()
one_server = lru_cache(maxsize=1024)(OneServer)
_SERVER_ID = re.compile(SERVER_ID_PATTERN)


def is_server_id(text: str) -> bool:
    """Say whether a server can have this id: of any other nothing need be kept."""
    return _SERVER_ID.fullmatch(text) is not None


def _quoted(text: str) -> str:
    """Return a text each of whose lines is marked, so that none can pass for a heading of ours."""
    return "\n".join(f"> {line}" for line in text.splitlines())
