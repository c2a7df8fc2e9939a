"""A node lets the admin page of its control plane call tools and chat, and no other page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.node_process import filled, node, not_started
from tests.flow.up_process import Up

ADMIN = "https://admin.example"
CALL = {"name": "notes/list_notes", "arguments": {}}


async def asked_by(
    up: Up, origin: str, method: str, path: str, **more: Any
) -> tuple[int, dict[str, str]]:
    """Ask as a browser does for a page; return the status and the headers that are about it."""
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    headers |= more.pop("headers", {})
    async with up.http.request(method, up.url + path, headers=headers, **more) as answer:
        await answer.read()
        named = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, {k: v for k, v in named.items() if k.startswith("access-control-")}


@pytest.mark.requirement("admin:node-origin")
async def test_the_admin_page_calls_tools_and_models_at_a_node(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(tmp_path / "node", served.grpc, token, "--admin-origin", ADMIN) as up,
    ):
        bearer = {"Authorization": f"Bearer {client}"}
        before = {"Access-Control-Request-Method": "POST"}
        before |= {"Access-Control-Request-Headers": "authorization, content-type"}
        for path in ("/api/v1/tools/call", "/v1/chat/completions"):
            status, said = await asked_by(up, ADMIN, "OPTIONS", path, headers=before)
            assert (status, said["access-control-allow-origin"]) == (204, ADMIN)
            assert said["access-control-allow-methods"] == "POST"
            assert "Authorization, Content-Type" in said["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in said
        called = {"headers": bearer, "json": CALL}
        status, said = await asked_by(up, ADMIN, "POST", "/api/v1/tools/call", **called)
        assert (status, said["access-control-allow-origin"]) == (200, ADMIN)
        chat = {"model": "rehearsal", "messages": [{"role": "user", "content": "hello"}]}
        talked = {"headers": bearer, "json": chat}
        status, said = await asked_by(up, ADMIN, "POST", "/v1/chat/completions", **talked)
        assert (status, said["access-control-allow-origin"]) == (200, ADMIN)
        status, said = await asked_by(up, ADMIN, "GET", "/v1/models", headers=bearer)
        assert (status, said["access-control-allow-origin"]) == (200, ADMIN)
        status, said = await asked_by(up, ADMIN, "POST", "/api/v1/tools/call", json=CALL)
        assert (status, said["access-control-allow-origin"]) == (401, ADMIN)


@pytest.mark.requirement("admin:node-origin")
async def test_no_other_page_and_no_other_path_is_let_in(tmp_path: Path):
    async with (
        filled(tmp_path / "plane") as (served, token, client),
        node(tmp_path / "node", served.grpc, token, "--admin-origin", ADMIN) as up,
    ):
        bearer = {"Authorization": f"Bearer {client}"}
        near = (f"{ADMIN}:444", "http://admin.example", "https://x.admin.example", "null")
        for origin in near:
            called = {"headers": bearer, "json": CALL}
            found = await asked_by(up, origin, "POST", "/api/v1/tools/call", **called)
            assert found == (403, {})
            assert await asked_by(up, origin, "OPTIONS", "/api/v1/tools/call") == (403, {})
        for path in ("/mcp", "/healthz", "/metrics", "/api/v1/guests", "/api/v1/node"):
            assert await asked_by(up, ADMIN, "GET", path, headers=bearer) == (403, {}), path


async def test_an_origin_that_no_browser_sends_is_refused(tmp_path: Path):
    for wrong in ("https://admin.example/admin", "*", "https://*.example", "admin.example"):
        words = ("--registry", "127.0.0.1:1", "--admin-origin", wrong)
        said = await not_started(tmp_path / "node", *words, BASCULE_TOKEN="t")
        assert "--admin-origin: must be an origin as a browser sends it" in said
