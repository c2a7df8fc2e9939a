"""``bascule tokens``: what is made and ended is written down, and what was edited is named."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bascule.app.data_dir import STORE_FILE, published, served_alone
from bascule.audit.ledger_file import FILE_NAME as LEDGER
from bascule.auth.token_store import FILE_NAME
from bascule.cli.acts import whoever
from bascule.control.registry.sqlite_store import SqliteStore
from tests.cli.served import Done, command


def tokens(data: Path, *words: str) -> Done:
    return command("tokens", *words, "--data-dir", str(data))


def execute(file: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement).fetchall()


@pytest.mark.requirement("security:tokens:sealed")
def test_a_token_that_was_edited_is_listed_as_altered_and_can_be_revoked(tmp_path: Path):
    for name in ("edited", "kept"):
        assert tokens(tmp_path, "create", "--role", "viewer", "--name", name).code == 0
    execute(tmp_path / FILE_NAME, "UPDATE tokens SET role = 'admin' WHERE name = 'edited'")
    listed = tokens(tmp_path, "list", "--json").json["tokens"]
    assert {one["name"]: one["state"] for one in listed} == {"edited": "altered", "kept": "valid"}
    words = tokens(tmp_path, "list").out.split()
    assert [words.count(word) for word in ("state", "altered", "valid")] == [1, 1, 1]
    [edited] = [one["id"] for one in listed if one["name"] == "edited"]
    assert tokens(tmp_path, "revoke", edited).code == 0
    left = tokens(tmp_path, "list", "--json").json["tokens"]
    assert [one["name"] for one in left] == ["kept"]


@pytest.mark.requirement("cli:tables")
def test_a_list_of_tokens_fits_80_columns_and_breaks_no_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("create", "--role", "operator", "--ttl", "86400", "--name", "night-shift", "--json")
    made = tokens(tmp_path, *words).json
    listed = tokens(tmp_path, "list").out
    assert max(map(len, listed.splitlines())) <= 80
    assert made["id"] in listed
    assert made["expires_at"][:10] in listed


@pytest.mark.requirement("cli:tables")
def test_a_list_shows_whom_a_token_speaks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    client = ("create", "--role", "client", "--task", "demo")
    assert tokens(tmp_path, *client, "--user", "alice", "--name", "hers").code == 0
    assert tokens(tmp_path, *client, "--act-for-users", "--name", "gate").code == 0
    limited = ("--for-task", "billing", "--for-task", "hr", "--name", "desk")
    assert tokens(tmp_path, "create", "--role", "approver", *limited).code == 0
    rows = [line.split()[1:] for line in tokens(tmp_path, "list").out.splitlines()]
    assert [
        row[: row.index(name) + 1]
        for row, name in zip(rows, ("name", "hers", "gate", "desk"), strict=True)
    ] == [
        ["role", "task", "user", "name"],
        ["client", "demo", "alice", "hers"],
        ["client", "demo", "(any)", "gate"],
        ["approver", "billing,", "hr", "-", "desk"],
    ]
    listed = tokens(tmp_path, "list", "--json").json["tokens"]
    said = [(one["person"], one["acts_for_users"], one["tasks"]) for one in listed]
    assert said == [("alice", False, None), (None, True, None), (None, False, ["billing", "hr"])]
    assert {one["made_by"] for one in listed} == {whoever()}
    rows = execute(tmp_path / LEDGER, "SELECT CAST(body AS TEXT) FROM events ORDER BY number")
    events = [json.loads(str(body)) for (body,) in rows]
    told = [(one["person"], one["acts_for_users"], one["tasks"]) for one in events]
    assert told == said


def test_a_token_for_somebody_and_for_anybody_is_refused_by_its_option(tmp_path: Path):
    words = ("create", "--role", "client", "--task", "t", "--user", "alice", "--act-for-users")
    done = tokens(tmp_path, *words)
    assert done.code != 0
    assert "--user: " in done.err
    assert tokens(tmp_path, "list", "--json").json["tokens"] == []


def test_a_task_that_the_registry_does_not_know_is_warned_of(tmp_path: Path):
    words = ("create", "--role", "client", "--task", "nope")
    assert "warning" not in tokens(tmp_path, *words).err, "nothing is known before the first start"

    async def registry() -> None:
        store = await SqliteStore(tmp_path / STORE_FILE).open()
        await store.close()

    asyncio.run(registry())
    done = tokens(tmp_path, *words)
    assert (done.code, done.out[:4]) == (0, "bsc_")
    assert "warning: task_id: there is no task 'nope' yet" in done.err
    [warning] = tokens(tmp_path, *words, "--json").json["warnings"]
    assert warning.startswith("task_id: ")


@pytest.mark.requirement("cli:tokens:connect", "gateway:address")
def test_a_clients_token_comes_with_how_to_connect_a_client(tmp_path: Path):
    client = ("create", "--role", "client", "--task", "demo")
    done = tokens(tmp_path, *client)
    assert done.out.strip().startswith("bsc_")
    assert done.err.splitlines() == [
        "connect an MCP client to http://127.0.0.1:7070/mcp",
        "  with the header Authorization: Bearer and this token",
    ]
    assert done.out.strip() not in done.err
    assert "X-Bascule-User" in tokens(tmp_path, *client, "--act-for-users").err
    assert tokens(tmp_path, *client, "--json").json["mcp_url"] == "http://127.0.0.1:7070/mcp"
    viewer = tokens(tmp_path, "create", "--role", "viewer")
    assert (viewer.code, viewer.err) == (0, "")


@pytest.mark.requirement("cli:tokens:connect")
def test_the_address_is_where_the_settings_or_the_process_say(tmp_path: Path):
    client = ("tokens", "create", "--role", "client", "--task", "demo", "--json")
    config = tmp_path / "bascule.toml"
    text = f'data_dir = "{tmp_path}/d"\nserver = {{host = "::1", port = 9, tls_key = "k", '
    config.write_text(text + 'tls_certificate = "c"}', encoding="utf-8")
    assert command(*client, "--config", str(config)).json["mcp_url"] == "https://[::1]:9/mcp"
    with served_alone(tmp_path / "d"), published(tmp_path / "d", "http://127.0.0.1:81"):
        assert command(*client, "--config", str(config)).json["mcp_url"] == (
            "http://127.0.0.1:81/mcp"
        )


@pytest.mark.requirement("audit:token-events")
def test_a_command_writes_down_who_made_and_ended_a_token(tmp_path: Path):
    made = tokens(tmp_path, "create", "--role", "viewer", "--json").json
    assert tokens(tmp_path, "revoke", made["id"]).code == 0
    assert tokens(tmp_path, "revoke", made["id"]).code != 0
    rows = execute(tmp_path / LEDGER, "SELECT CAST(body AS TEXT) FROM events ORDER BY number")
    said = [json.loads(str(body)) for (body,) in rows]
    assert [(one["event"], one["by"], one["token_id"]) for one in said] == [
        ("token_made", whoever(), made["id"]),
        ("token_ended", whoever(), made["id"]),
    ]


@pytest.mark.requirement("audit:token-events")
def test_a_command_makes_no_token_when_the_ledger_cannot_be_written(tmp_path: Path):
    made = tokens(tmp_path, "create", "--role", "viewer", "--json").json
    (tmp_path / LEDGER).write_bytes(b"not a database" * 100)
    done = tokens(tmp_path, "create", "--role", "admin")
    assert done.code != 0
    assert "ledger" in done.err
    assert tokens(tmp_path, "revoke", made["id"]).code != 0
    listed = tokens(tmp_path, "list", "--json").json["tokens"]
    assert [one["id"] for one in listed] == [made["id"]]
