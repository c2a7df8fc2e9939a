"""What the agents API takes and gives."""

from __future__ import annotations

from msgspec.structs import replace

from bascule.doors.agents.api import ENTRY
from bascule.manager.config import McpServerConfig
from bascule.wire.api.addresses import AGENT_ENTRIES, AGENT_RECONNECT, AGENT_SERVERS, AGENTS
from bascule.wire.api.agents import AgentList, AgentServers, Reconnect, ServerChanged
from checks.openapi_routes import NAME, OBJECT, READ, WRITE, Exchange

_AGENT = {"agent_id": NAME}
_REMOVED = Exchange(
    answers={200: ServerChanged},
    refusals=(
        *(*READ, "invalid_record", "not_found", "wrong_state"),
        *("pair_not_accepted", "store_unavailable"),
    ),
    query=_AGENT,
    needed=("agent_id",),
)
_REPLACED = replace(_REMOVED, refusals=(*WRITE, *_REMOVED.refusals), body=McpServerConfig)
AGENT_ROUTES = {
    ("GET", AGENTS): Exchange(answers={200: AgentList}),
    ("GET", AGENT_SERVERS): Exchange(
        answers={200: AgentServers}, refusals=(*READ, "not_found"), query=_AGENT
    ),
    ("POST", AGENT_RECONNECT): Exchange(
        answers={200: ServerChanged},
        refusals=(
            *(*WRITE, "invalid_record", "not_found", "wrong_state"),
            *("mcp_unavailable", "session_refused"),
        ),
        body=Reconnect,
    ),
    ("POST", AGENT_ENTRIES): replace(
        _REPLACED,
        answers={201: ServerChanged},
        refusals=(*_REPLACED.refusals, "already_exists"),
    ),
    ("PUT", ENTRY): _REPLACED,
    ("PATCH", ENTRY): replace(_REPLACED, body=OBJECT),
    ("DELETE", ENTRY): _REMOVED,
}
