"""Whatever is sent, the answer is one that the description promises, and never an internal error.

The desk compares every answer with the committed description. What is refused changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tests.control.api.desk import ADMIN, open_desk
from tests.control.registry.build import PLAIN, server

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["***", "${ENV:X}", "${", "secret://a", "*", "__", "always", "fs", "true"])
)
NAMES = st.text(max_size=6) | st.sampled_from(
    ["command", "env", "url", "headers", "enabled", "mcp.enabled", "rules", "when", "tools", "keys"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *("server_id", "task_id", "name", "version", "transport", "stdio", "http", "tags", "mcp"),
        *("config", "effects", "budgets", "approval_policy", "hygiene", "tool_namespace", "status"),
        *(
            "environments",
            "ceilings",
            "base_url",
            "key_ref",
            "executable",
            "revision",
            "updated_at",
        ),
        *("mode", "records", "servers", "tasks", "mcpServers", "only", "platform"),
        *("task", "profile", "person", "session", "environment"),
    ]
)
BODIES = st.builds(
    lambda kind, changes: {**PLAIN[kind][1], **changes},
    st.sampled_from(sorted(PLAIN)),
    st.dictionaries(FIELDS, VALUES, max_size=3),
)
PLACES = st.sampled_from(
    [
        *(("POST", f"/{name}") for name in ("servers", "tasks", "profiles", "backends", "users")),
        *(("POST", f"/{name}") for name in ("import", "rollback", "servers/fs/adopt", "effective")),
        *(
            (method, f"/{place}")
            for method in ("PUT", "PATCH")
            for place in ("servers/fs", "tasks/review", "profiles/code", "platform", "backends/b")
        ),
        *(
            ("GET", f"/{name}")
            for name in ("servers", "history", "diff", "tasks", "tools", "platform")
        ),
        ("DELETE", "/servers/fs"),
    ]
)
QUERY = st.dictionaries(
    st.sampled_from(["limit", "cursor", "strict", "mode", "before", "from", "to", "environment"]),
    st.text(max_size=6) | st.sampled_from(["0", "1", "true", "preview", "replace", "9" * 30]),
    max_size=2,
)
HEADERS = st.dictionaries(
    st.sampled_from(["If-Match", "If-None-Match"]),
    st.sampled_from(["*", '"1"', '"0"', 'W/"1"', '"9999999999999999999"', "x", '"', '"1", "2"']),
    max_size=1,
)


@given(place=PLACES, body=BODIES | VALUES, query=QUERY, headers=HEADERS)
def test_any_request_gets_an_answer_that_was_promised(
    place: tuple[str, str], body: Any, query: dict[str, str], headers: dict[str, str]
):
    method, path = place
    asked = "&".join(f"{name}={quote(value)}" for name, value in query.items())

    async def try_it() -> None:
        async with open_desk() as desk:
            await desk.ask("PUT", f"{ADMIN}/servers/fs", server("fs"))
            before = desk.service.view
            given = {} if method in ("GET", "DELETE") else {"body": body}
            answer = await desk.ask(method, f"{ADMIN}{path}?{asked}", headers=headers, **given)
            assert answer.status < 500
            assert answer.status < 300 or desk.service.view == before

    asyncio.run(try_it())
