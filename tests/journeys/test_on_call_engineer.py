"""Journey 9: the on-call engineer at three in the morning: a full disk, and a token that leaked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.full_disk import full_disk
from tests.flow.up_process import Up, serving
from tests.journeys.shell import Terminal
from tests.waits import until


async def _figure(up: Up, name: str) -> str:
    headers = {"Authorization": f"Bearer {up.admin}"}
    async with up.http.get(f"{up.url}/metrics", headers=headers) as answer:
        lines = (await answer.text()).splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name} "))


async def _ready(up: Up) -> tuple[int, Any]:
    return await up.ask("GET", "/readyz")


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:doctor")
async def test_a_full_disk_is_named_everywhere_and_calls_go_on_when_there_is_room(tmp_path: Path):
    data = tmp_path / "data"
    at = Terminal(tmp_path, data)
    async with serving(data) as up:
        token = await up.token("demo")
        note = {"name": "at-night", "text": "x"}
        status, body = await up.call(token, "mcp__notes__list_notes")
        assert (status, body["ok"]) == (200, True)
        assert (await at("doctor")).code == 0
        with full_disk(up):
            _, refused = await up.call(token, "mcp__notes__write_note", **note)
            assert refused["error"]["code"] == "mcp_unavailable"
            assert refused["error"]["details"] == {"reason": "ledger_unavailable"}
            status, answer = await _ready(up)
            assert (status, "cannot be written" in answer["error"]["message"]) == (503, True)
            assert float(await _figure(up, "mcp_ledger_down")) == 1
            seen = await at("doctor")
            assert (seen.code, "problem: the process is not ready: " in seen.out) == (1, True)
            assert "cannot be written" in seen.out
        await until(lambda: _ledger_is_written(up))
        _, body = await up.call(token, "mcp__notes__list_notes")
        assert (body["ok"], "at-night" in body["text"]) == (True, False)  # refused is not done
        log = await _logged(up)
        assert "the journal of the ledger cannot be written: " in log
        assert "(mcp_unavailable)" in log
    async with serving(data) as again:  # the registry may have asked for it
        assert (await _ready(again))[0] == 200
        assert (await at("doctor")).code == 0
        assert "ok: " in await at.works("audit verify")
        assert await again.end() == 0


async def _ledger_is_written(up: Up) -> bool:
    return float(await _figure(up, "mcp_ledger_down")) == 0


async def _logged(up: Up) -> str:
    assert up.process.stderr is not None
    assert await up.end() == 0
    async with asyncio.timeout(20):
        return (await up.process.stderr.read()).decode()


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:audit", "cli:tokens")
async def test_a_leaked_token_is_traced_and_revoked(tmp_path: Path):
    data = tmp_path / "data"
    at = Terminal(tmp_path, data)
    async with serving(data) as up:
        create = "tokens create --role client --task demo --name ci --json"
        leaked, others = [json.loads(await at.works(create)) for _ in range(2)]
        await up.call(leaked["token"], "mcp__notes__read_note", name="welcome")
        await up.call(leaked["token"], "mcp__notes__write_note", name="spam", text="x")
        await up.call(others["token"], "mcp__notes__list_notes")

        listed = await at.works("tokens list")
        [line] = [line for line in listed.splitlines() if line.startswith(leaked["id"])]
        token_id = line.split()[0]
        did = await at.works(f"audit search --token-id {token_id}")
        assert did.count("notes/") == 2
        assert ("notes/write_note" in did, "list_notes" in did) == (True, False)

        revoked = await at(f"tokens revoke {token_id}")
        assert (revoked.code, f"revoked {token_id}" in revoked.err) == (0, True)
        status, answer = await up.call(leaked["token"], "mcp__notes__list_notes")
        assert (status, answer["error"]["code"]) == (401, "unauthenticated")
        status, answer = await up.call(others["token"], "mcp__notes__list_notes")
        assert (status, answer["ok"]) == (200, True)
        ended = await at.works("audit search --event token_ended")
        assert f"token ended: {token_id}" in ended
        assert await up.end() == 0
