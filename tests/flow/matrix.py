"""Every transport and generation there is, as places where a script can be served.

    async with place.session(ScriptedServer(behaviours={"echo": "echo"})) as session:
        await session.call("mcp__bad__echo", {"text": "hello"})

A place over stdio is a real process, one over HTTP a real socket. A test module says ``place =
matrix.place`` and takes ``place`` as an argument, and so runs once for each of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.server import Server
from bascule.testing import ScriptedHttpServer, ScriptedServer
from tests.flow.servers import BUDGETS, PATIENT, record

Transport = Literal["stdio", "streamable_http", "http_sse_legacy"]


@dataclass(frozen=True)
class Place:
    """One way to reach a server, in one generation of the protocol."""

    name: str
    transport: Transport
    era: Literal["modern", "legacy"]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_remote(self) -> bool:
        """Whether the server is at the other end of a socket."""
        return self.transport != "stdio"

    @property
    def shares_a_wire(self) -> bool:
        """Whether the answers to all calls come in on one stream."""
        return self.transport != "streamable_http"

    @property
    def is_stateless(self) -> bool:
        """Whether the server has no way to say or hear what belongs to no request.

        A legacy server without sessions can neither announce a change nor tell which call a
        cancellation is about.
        """
        return self.era == "legacy" and self.settings.get("stateful") is False

    @asynccontextmanager
    async def serving(
        self, script: ScriptedServer, server_id: str = "bad", **fields: Any
    ) -> AsyncGenerator[ServerRecord, None]:
        """Serve a script here; give the record by which it is reached."""
        script = replace(script, era=self.era)
        if not self.is_remote:
            yield record(script, server_id, **fields)
            return
        async with ScriptedHttpServer(server=script, **self.settings) as http:
            yield remote_record(http, server_id, transport=self.transport, **fields)

    @asynccontextmanager
    async def session(self, script: ScriptedServer, **fields: Any) -> AsyncGenerator[Session, None]:
        """Serve a script here, as the server ``bad`` of a bridge with a session on it."""
        async with (
            self.serving(script, **fields) as served,
            Bridge.open([served], settings=PATIENT) as bridge,
            bridge.session(server_ids=["bad"]) as session,
        ):
            yield session


def remote_record(http: ScriptedHttpServer, server_id: str = "bad", **fields: Any) -> ServerRecord:
    """Return the record of a scripted server over HTTP, with the budgets of this folder."""
    budgets = {**BUDGETS, **fields.pop("budgets", {})}
    return Server.http(server_id, http.url, budgets=budgets, **fields)


def _http(name: str, era: Literal["modern", "legacy"], **settings: Any) -> Place:
    return Place(name, "streamable_http", era, {"dialects": (era,), **settings})


PLACES = (
    Place("stdio legacy", "stdio", "legacy"),
    Place("stdio modern", "stdio", "modern"),
    _http("http modern json", "modern"),
    _http("http modern sse", "modern", answer="sse"),
    _http("http legacy stateful", "legacy"),
    _http("http legacy stateless", "legacy", stateful=False),
    _http("http legacy sse", "legacy", answer="sse"),
    Place("legacy HTTP+SSE", "http_sse_legacy", "legacy", {"dialects": ("sse",)}),
)


@pytest.fixture(params=PLACES, ids=lambda place: place.name)
def place(request: pytest.FixtureRequest) -> Place:
    """Each place in its turn."""
    return request.param
