"""Commands on a data directory whose registry is in PostgreSQL: they find it, or say what lacks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.served import Done, command, process
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
        link = await run("web", *here, **made.env)
        assert (link.code, link.json["url"].startswith(a.url)) == (0, True), link.err
        well = await run("doctor", *here, **made.env)
        assert (well.code, well.json["ok"]) == (0, True), well.out + well.err


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
