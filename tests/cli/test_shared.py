"""Commands on a data directory whose registry is in PostgreSQL: they find it, or say what lacks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest

from bascule.cli.command_line import typed
from tests.cli.served import Done, command, process
from tests.flow.up_process import record
from tests.postgres.replicas import replicas

SERVER = ("servers", "add", "x", "--allow", "*", "--", "true")


async def run(*words: str, **env: str) -> Done:
    return await asyncio.to_thread(command, *words, **env)


@pytest.mark.requirement("cli:shared")
async def test_commands_of_a_replicas_owner_need_no_more_than_its_directory(tmp_path: Path):
    async with replicas(tmp_path) as made:
        a = await made.start("a")
        b = await made.start("b")
        here = ("--data-dir", str(a.data), "--json")
        done = await run(*SERVER[:5], *here, *SERVER[5:], **made.env)
        assert done.code == 0, done.err
        listed = await run("servers", "list", "--data-dir", str(b.data), "--json", **made.env)
        assert [one["server_id"] for one in listed.json["servers"]] == ["x"], listed.err
        created = await run(
            "tokens", "create", "--role", "viewer", "--name", "v", *here, **made.env
        )
        assert created.code == 0, created.err
        assert (await b.ask("GET", "/admin/api/mcp/servers", token=created.json["token"]))[0] == 200
        assert not (a.data / "tokens.db").exists()
        names = [
            one["name"] for one in (await run("tokens", "list", *here, **made.env)).json["tokens"]
        ]
        assert "v" in names
        revoked = await run("tokens", "revoke", created.json["id"], *here, **made.env)
        assert revoked.code == 0, revoked.err
        put = ("secrets", "set", "s", "--bind", "x")
        done = await asyncio.to_thread(command, *put, *here, given="value", **made.env)
        assert done.code == 0, done.err
        there = await run("secrets", "list", "--data-dir", str(b.data), "--json", **made.env)
        assert [one["name"] for one in there.json["secrets"]] == ["s"], there.err
        trail = await run("audit", "search", "--event", "secret", *here, **made.env)
        assert len(trail.json["entries"]) == 2, trail.err  # set, and bound
        exported = await run("audit", "export", "--event", "secret", *here[:2], **made.env)
        assert (exported.code, len(exported.out.splitlines())) == (0, 2), exported.err
        link = await run("web", *here, **made.env)
        assert (link.code, link.json["url"].startswith(a.url)) == (0, True), link.err
        well = await run("doctor", *here, **made.env)
        assert (well.code, well.json["ok"]) == (0, True), well.out + well.err


@pytest.mark.requirement("cli:shared")
async def test_a_dry_run_says_what_files_would_change_in_the_shared_registry(tmp_path: Path):
    records = tmp_path / "records"
    records.mkdir()
    (records / "x.toml").write_text(record("x"), encoding="utf-8")
    async with replicas(tmp_path) as made:
        words = ("up", "--dry-run", "--registry-dir", str(records), "--dsn", made.dsn, "--json")
        here = ("--data-dir", str(tmp_path / "a"))
        empty = await run(*words, *here)
        assert (empty.code, empty.json["problems"]) == (0, []), empty.err
        assert "x" in "".join(empty.json["diff"])
        connection = await asyncpg.connect(made.dsn)
        tables = await connection.fetchval(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        )
        await connection.close()
        assert tables == 0
        a = await made.start("a", "--registry-dir", str(records))
        same = await run(*words, *here)
        assert (same.code, same.json["diff"]) == (0, ["no change"]), same.err
        assert await a.end() == 0  # which would load it first
        (records / "x.toml").unlink()
        gone = await run(*words, *here)
        assert (gone.code, "x" in "".join(gone.json["diff"])) == (0, True), gone.err


@pytest.mark.requirement("cli:shared")
async def test_tokens_can_be_made_before_any_replica_has_started(tmp_path: Path):
    async with replicas(tmp_path) as made:
        env = {**made.env, "BASCULE_DSN": made.dsn}
        words = ("tokens", "create", "--role", "admin", "--data-dir", str(tmp_path / "a"))
        token = (await run(*words, **env)).out.strip()
        a = await made.start("a")
        assert not (a.data / "setup-token").exists()
        assert (await a.ask("GET", "/admin/api/tokens", token=token))[0] == 200


@pytest.mark.parametrize("words", [("tokens", "list"), ("secrets", "list"), ("servers", "list")])
def test_a_password_is_not_kept_so_commands_ask_for_the_dsn(words: tuple[str, ...], tmp_path: Path):
    noted = {"where": "PostgreSQL at db.example/bascule", "store_id": "abc"}
    (tmp_path / "shared-registry").write_text(json.dumps(noted), encoding="utf-8")
    done = process(*words, "--data-dir", str(tmp_path))
    assert done.code == 1
    if words[0] != "servers":  # which finds first that nothing serves
        assert "is in PostgreSQL at db.example/bascule, whose password is not kept" in done.err
        assert "--dsn" not in done.err  # which most commands do not have


AUDITS = ("tail", "search", "show r-1", "export", "verify", "checkpoint")


@pytest.mark.requirement("cli:shared:audit")
@pytest.mark.parametrize("verb", AUDITS)
@pytest.mark.parametrize("dsn", [None, "postgresql://ada@db.example/bascule"], ids=["kept", "told"])
def test_a_shared_ledger_that_nothing_serves_says_which_command_helps(
    verb: str, dsn: str | None, tmp_path: Path
):
    """Neither the password nor the database is needed to say so."""
    env = {} if dsn is None else {"BASCULE_DSN": dsn}
    if dsn is None:
        noted = {"where": "PostgreSQL at db.example/bascule", "store_id": "abc"}
        (tmp_path / "shared-registry").write_text(json.dumps(noted), encoding="utf-8")
    done = command("audit", *verb.split(), "--data-dir", str(tmp_path), **env)
    assert (done.code, done.out) == (1, "")
    up, serve = (f"{typed(words)} --data-dir {tmp_path}" for words in ("up", "registry serve"))
    assert done.err == (
        f"error: the ledger is in PostgreSQL, and nothing serves {tmp_path}: start a replica with "
        f"{up} (or {serve}), or ask one that runs: --api-url URL, and its token in BASCULE_TOKEN\n"
    )


async def test_the_first_start_of_a_replica_names_no_demo_that_it_does_not_have(tmp_path: Path):
    async with replicas(tmp_path) as made:
        a = await made.start("a")
        lines = await a.next_lines(6)
    assert "demo" not in "".join(lines)
    assert f"servers add time --allow '*' --data-dir {a.data} -- uvx" in lines[-2]
