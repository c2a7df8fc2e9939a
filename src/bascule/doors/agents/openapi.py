"""What the routes of the agents API take and give, for the description of the API.

Below: ``bascule.asgi.openapi``, and the routes' own types. Above: a composition root joins it to
what its other routes say, and knows what an entry of a server looks like.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from bascule.asgi.openapi import (
    NULLABLE,
    READ,
    REFS,
    TEXT,
    WRITE,
    Exchange,
    Schema,
    list_of,
    object_of,
    ref,
)
from bascule.doors.agents.api import AGENTS, ENTRIES, ENTRY, RECONNECT, SERVERS, ReconnectBody
from bascule.doors.agents.ports import AgentView, Changed, ServerView

Pairs: TypeAlias = Iterator[tuple[tuple[str, str], Exchange]]

_AGENT: dict[str, Schema] = {"agent_id": {"type": "string", "minLength": 1}}
#: Why a change of the file may be refused.
_CHANGING = (
    "invalid_record",
    "not_found",
    "wrong_state",
    "pair_not_accepted",
    "store_unavailable",
)


def schemas() -> dict[str, Schema]:
    """Return the schemas that the table refers to."""
    types = (AgentView, ServerView, Changed, ReconnectBody)
    _, found = msgspec.json.schema_components(types, ref_template=REFS + "{name}")
    return found


def exchanges(entry: Schema) -> Pairs:
    """Describe every route; ``entry`` is the schema of a server's entry."""
    problems = list_of(TEXT)
    agents = object_of(agents=list_of(ref(AgentView)), problems=problems)
    yield ("GET", AGENTS), Exchange(answers={200: agents})
    servers = object_of(agent_id=NULLABLE, servers=list_of(ref(ServerView)), problems=problems)
    yield (
        ("GET", SERVERS),
        Exchange(answers={200: servers}, refusals=(*READ, "not_found"), query=_AGENT),
    )
    yield ("POST", RECONNECT), _reconnect()
    yield ("POST", ENTRIES), _change(201, entry, "already_exists")
    yield ("PUT", ENTRY), _change(200, entry)
    yield ("PATCH", ENTRY), _change(200, {"type": "object"})
    yield ("DELETE", ENTRY), _change(200, None)


def _reconnect() -> Exchange:
    answer = object_of(agent_id=TEXT, server_name=TEXT, server=ref(ServerView))
    refusals = ("invalid_record", "not_found", "wrong_state", "mcp_unavailable", "session_refused")
    return Exchange(answers={200: answer}, refusals=(*WRITE, *refusals), body=ref(ReconnectBody))


def _change(status: int, body: Any, *refusals: str) -> Exchange:
    usual = READ if body is None else WRITE
    return Exchange(
        answers={status: ref(Changed)},
        refusals=(*usual, *_CHANGING, *refusals),
        body=body,
        query=_AGENT,
        needed=("agent_id",),
    )
