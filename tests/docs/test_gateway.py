"""Every claim of docs/gateway.md that can be run, run; those that are numbers, compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bascule.asgi.errors import HTTP_STATUSES
from bascule.doors.gateway.api import MAX_BODY_BYTES
from bascule.doors.gateway.calls import MAX_PER_TOKEN
from bascule.doors.gateway.kept_outputs import MAX_PART_BYTES
from bascule.doors.gateway.kept_outputs import NAME as READ_OUTPUT
from bascule.doors.gateway.listening import MAX_PER_PERSON as PERSON_STREAMS
from bascule.doors.gateway.listening import MAX_PER_TOKEN as TOKEN_STREAMS
from bascule.doors.gateway.lists import MAX_PAGE_BYTES, MAX_PAGE_TOOLS
from bascule.doors.gateway.outcomes import ERROR_KEY, TRUNCATED_KEY
from bascule.doors.gateway.session_ids import LIFE_SECONDS, MAX_LENGTH
from bascule.doors.gateway.wishes import MAX_WAIT_MS, WAIT_KEY, WAIT_SECONDS
from bascule.model.code import CODES
from bascule.wire.era import LEGACY, MODERN
from bascule.wire.faults import face
from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS, USER
from checks.tree import ROOT
from tests.docs.programs import said

PAGE = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
MIB = 1024 * 1024


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.requirement(
    "gateway:mode", "manager:server-mode", "executor:server-mode", "gateway:page"
)
async def test_the_first_client_of_the_page_gets_the_tools_of_its_task(tmp_path: Path):
    [program] = blocks("python")
    tools, *note = await said(program, tmp_path)
    assert "'mcp__notes__read_note'" in tools
    assert "bascule__read_output" not in tools
    assert "These notes live in the memory" in note[0]


def test_every_configuration_can_be_read_and_leads_to_the_gateway():
    found = [json.loads(block) for block in blocks("json")]
    assert len(found) == 4
    for one in found:
        [server] = (one.get("mcpServers") or one["servers"]).values()
        assert "http://127.0.0.1:7070/mcp" in (server.get("url"), *server.get("args", ()))
        assert "Authorization" in json.dumps(server)


@pytest.mark.requirement("admin:web:connect")
def test_the_web_page_has_the_texts_of_these_pages():
    clients = json.loads(
        (ROOT / "web/src/screens/welcome/clients.json").read_text(encoding="utf-8")
    )
    chat = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    texts = {one["label"]: "\n".join(one["text"]) for one in clients}
    for label in ("Claude Code", "Claude Desktop", "VS Code", "Cursor"):
        assert f"\n{texts[label]}\n" in PAGE, label
    assert f"    {texts['OpenAI']}\n" in chat


def test_the_page_names_every_client_that_the_tests_play():
    for client in (
        *("Python SDK", "Python SDK 1.x", "TypeScript SDK", "v1", "v2", "MCP Inspector"),
        *("mcp-remote", "fastmcp", "openai-agents", "pydantic-ai"),
        *("Claude Code", "VS Code", "Cursor"),
    ):
        assert client in PAGE, client


@pytest.mark.requirement("gateway:page")
def test_the_table_of_outcomes_has_every_code():
    table = PAGE.partition("## What came of a call")[2].partition("A result with `isError`")[0]
    assert set(re.findall(r"`(mcp_[a-z_]+)`", table)) | {"mcp_output_too_large"} == {
        code for code in CODES if code.startswith("mcp_")
    }


def test_the_table_of_refusals_has_the_statuses_of_the_codes():
    rows = re.findall(r"^\| ([0-9, ]+) \| ((?:`[a-z_]+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert len(rows) >= 6
    for statuses, codes in rows:
        for code in re.findall(r"`([a-z_]+)`", codes):
            status = HTTP_STATUSES.get(code) or face(code).http
            assert str(status) in statuses, code


def test_versions_headers_and_names_are_those_of_the_code():
    for version in (MODERN, *LEGACY):
        assert version in PAGE
    for header in (*FLAGS, *LISTS, *NUMBERS, USER):
        assert f"`{header}`" in PAGE, header
    for name in (f'_meta["{WAIT_KEY}"]', f'_meta["{ERROR_KEY}"]', f'_meta["{TRUNCATED_KEY}"]'):
        assert f"`{name}`" in PAGE, name
    assert f"`{READ_OUTPUT}`" in PAGE


@pytest.mark.requirement("gateway:page")
def test_the_limits_are_those_of_the_code():
    limits = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.partition("## Limits")[2], re.M))
    assert limits["body of a request"] == f"{MAX_BODY_BYTES // MIB} MiB"
    assert limits["calls of one token at once"].startswith(f"{MAX_PER_TOKEN}, ")
    streams = limits["open streams (`GET`, `subscriptions/listen`)"]
    assert streams.startswith(f"{PERSON_STREAMS} of one person, {TOKEN_STREAMS} of one token")
    assert limits["life of a session"] == f"{LIFE_SECONDS // 3600} hours"
    assert limits["length of a session id"].startswith(f"{MAX_LENGTH // 1024} KiB")
    assert limits["page of a list"] == f"{MAX_PAGE_TOOLS:,} tools or {MAX_PAGE_BYTES // MIB} MiB"
    assert limits["part of an output that is read at once"] == f"{MAX_PART_BYTES // 1024} KiB"
    assert limits["wait for approval"] == f"{MAX_WAIT_MS:,} ms"
    assert f"for {WAIT_SECONDS:g} seconds where the caller accepts a stream" in PAGE
