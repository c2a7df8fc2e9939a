"""``bascule up`` while its store refuses writes: alive, not ready, and it says why."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.flow.up_process import Up, run, serving

PATH = "/admin/api/mcp/servers/x"
BODY = {"server_id": "x", "transport": "stdio", "stdio": {"command": "true"}}


async def ready(up: Up) -> tuple[int, str]:
    status, answer = await up.ask("GET", "/readyz")
    return status, str(answer)


@pytest.mark.requirement("observability:readyz:store")
async def test_readiness_follows_whether_the_store_takes_writes(tmp_path: Path):
    async with serving(tmp_path / "data", "--empty") as up:
        assert (await ready(up))[0] == 200
        store = up.data / "registry.db"
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            status, _ = await up.ask("PUT", PATH, token=up.admin, body=BODY)
            assert status == 503
            status, said = await ready(up)
            assert (status, "another process holds the store" in said) == (503, True)
            assert str(up.data) not in said
            assert (await up.ask("GET", "/healthz"))[0] == 200
            other.execute("ROLLBACK")
        status, answer = await up.ask("PUT", PATH, token=up.admin, body=BODY)
        assert status == 201, answer
        assert (await ready(up))[0] == 200
        assert await up.end() == 0


async def test_without_a_ledger_the_audit_trail_says_that_it_is_off(tmp_path: Path):
    settings = tmp_path / "off.toml"
    settings.write_text("[ledger]\nenabled = false\n", encoding="utf-8")
    words = ("--config", str(settings))
    async with serving(tmp_path / "data", "--empty", *words) as up:
        for path in ("", "/r-1", "/watch", "/export"):
            status, answer = await up.ask("GET", f"/admin/api/audit{path}", token=up.admin)
            assert status == 503
            assert "ledger.enabled is false" in answer["error"]["message"]
        code, _, err = await run("audit", "search", "--data-dir", str(up.data), *words)
        assert (code, "ledger.enabled is false" in err) == (1, True)
