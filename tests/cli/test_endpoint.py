"""How a command finds a running process and a token for it, and what it says when it does not."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.events import Act
from bascule.audit.ledger import LedgerUnavailable
from bascule.audit.ledger_file import FILE_NAME as LEDGER
from bascule.auth.token_record import TokenRecord
from bascule.auth.token_store import open_tokens
from bascule.cli.acts import whoever
from bascule.cli.endpoint import end_token
from bascule.model.role import Role
from tests.cli.served import Served, command, process, served

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up")) as up:
        yield up


def mint(data: Path, role: Role) -> str:
    async def minted() -> str:
        async with open_tokens(data) as tokens:
            return (await tokens.mint("test", role)).token

    return asyncio.run(minted())


def kept(data: Path) -> tuple[TokenRecord, ...]:
    async def records() -> tuple[TokenRecord, ...]:
        async with open_tokens(data) as tokens:
            return await tokens.records()

    return asyncio.run(records())


def end_setup(data: Path) -> None:
    async def revoked() -> None:
        async with open_tokens(data) as tokens:
            for record in await tokens.records():
                if record.name == "setup":
                    await tokens.revoke(record.id)

    asyncio.run(revoked())


def test_the_data_directory_is_enough(up: Served):
    assert up("servers", "list").code == 0
    assert process("servers", "list", BASCULE_DATA_DIR=str(up.data)).code == 0


def test_without_the_setup_token_a_token_is_made_and_ended(tmp_path: Path):
    with served(tmp_path) as up:
        end_setup(tmp_path)
        done = up("servers", "add", "x", "--json", "--", "true")
        assert done.code == 0, done.err
        [change] = up.json("servers", "history", "--limit", "1")["changes"]
        assert change["actor"] == "cli-servers"
        assert [record for record in kept(tmp_path) if record.name.startswith("cli")] == []


def noted(data: Path) -> list[dict[str, Any]]:
    """Return what the ledger has of tokens that commands made and ended."""
    with closing(sqlite3.connect(data / LEDGER)) as connection:
        rows = connection.execute("SELECT CAST(body AS TEXT) FROM events ORDER BY number")
        events = [json.loads(body) for (body,) in rows]
    return [one for one in events if one.get("by") == whoever()]


@pytest.mark.requirement("cli:tokens:use", "security:tokens:maker")
def test_a_token_of_a_command_is_named_for_it_has_its_role_and_is_in_the_ledger(tmp_path: Path):
    with served(tmp_path) as up:
        end_setup(tmp_path)
        assert up("servers", "list").code == 0
        assert noted(tmp_path) == [], "whoever only reads is not written down"
        for words in (
            ("servers", "adopt", "notes"),
            ("servers", "tools", "notes"),
            ("tools", "list"),
        ):
            done = up(*words)
            assert done.code == 0, done.err
        made = noted(tmp_path)
    told = [(one["event"], one.get("name"), one.get("role"), one["by"]) for one in made]
    uses = (("cli-servers", "admin"), ("cli-servers", "operator"), ("cli-tools", "client"))
    assert told == [("token_made", name, role, whoever()) for name, role in uses]
    assert [record for record in kept(tmp_path) if record.name.startswith("cli")] == []


@pytest.mark.requirement("cli:tokens:use")
def test_the_setup_token_is_used_where_an_administrator_is_needed(tmp_path: Path):
    with served(tmp_path) as up:
        assert up("servers", "adopt", "notes").code == 0
        [change] = up.json("servers", "history", "--limit", "1")["changes"]
        assert change["actor"] == "setup"
        assert noted(tmp_path) == []


@pytest.mark.requirement("cli:tokens:use")
async def test_a_token_is_ended_also_when_that_cannot_be_written(tmp_path: Path):
    """A ledger that fails must not leave a token behind."""
    fails = False

    async def note(act: Act) -> None:
        if fails:
            raise LedgerUnavailable("the disk is full")

    async with open_tokens(tmp_path, note=note) as tokens:
        minted = await tokens.mint("cli-tools", "client", task_id="t", by=whoever())
        assert minted.record.made_by == whoever()
        fails = True
        await end_token(tokens, minted.record.id)
        assert await tokens.records() == ()


def test_a_url_and_a_token_are_taken_from_flags_and_from_the_environment(
    up: Served, tmp_path: Path
):
    token, elsewhere = mint(up.data, "viewer"), str(tmp_path)
    words = ("servers", "list", "--data-dir", elsewhere)
    assert command(*words, "--api-url", up.url, "--token", token).code == 0
    assert command(*words, "--url", f"{up.url}/", "--token", token).code == 0
    assert command(*words, BASCULE_URL=up.url, BASCULE_TOKEN=token).code == 0
    flagged = command(*words, "--url", up.url, BASCULE_URL=NOBODY, BASCULE_TOKEN=token)
    assert flagged.code == 0, flagged.err


def test_what_a_token_may_not_do_is_refused_with_its_own_exit_code(up: Served):
    viewer = mint(up.data, "viewer")
    done = up("servers", "add", "x", "--token", viewer, "--json", "--", "true")
    assert (done.code, done.json["error"]["code"]) == (10, "forbidden")
    assert done.err.startswith("error: ")


@pytest.mark.parametrize("known", [True, False])
def test_a_token_that_was_left_in_the_environment_is_named(up: Served, *, known: bool):
    token = mint(up.data, "viewer") if known else "bsc_wrong"
    words = ("servers", "remove", "x", "--data-dir", str(up.data))
    done = command(*words, BASCULE_TOKEN=token)
    assert done.code == (10 if known else 1)
    assert "the token is that of BASCULE_TOKEN; without it, commands here use their own" in done.err
    assert "without it" not in command(*words, "--token", token, BASCULE_TOKEN=token).err


def test_a_token_that_nobody_knows_is_said_to_be_unknown(up: Served):
    done = up("servers", "list", "--token", "bsc_wrong")
    assert (done.code, done.out) == (1, "")
    assert "revoked" in done.err


def test_a_token_of_the_data_directory_goes_to_no_other_server(up: Served):
    done = up("servers", "list", "--url", NOBODY, "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "no_token")
    assert "BASCULE_TOKEN" in done.err


def test_the_directorys_own_url_may_be_spelled_out(up: Served):
    assert up("servers", "list", "--url", f"{up.url}/").code == 0


def test_where_nothing_serves_the_command_to_start_it_is_said(tmp_path: Path):
    done = command("servers", "list", "--data-dir", str(tmp_path / "none"), "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "not_serving")
    assert f"bascule up --data-dir {tmp_path / 'none'}" in done.err
    assert not (tmp_path / "none").exists()


def test_an_address_that_a_killed_process_left_is_not_asked(tmp_path: Path):
    with served(tmp_path) as up:
        url = up.url
        up.serving.kill()
        up.serving.wait(10)
        assert (tmp_path / "url").exists()
        done = up("servers", "list")
    assert done.code == 1
    assert "has ended" in done.err
    assert url in done.err
    assert "bascule up" in done.err


def test_a_server_that_cannot_be_reached_is_one_line(tmp_path: Path):
    words = ("--url", NOBODY, "--token", "x", "--data-dir", str(tmp_path))
    done = command("servers", "list", *words, "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "unreachable")
    assert done.err.startswith(f"error: {NOBODY}: ")
    assert "Traceback" not in done.err


def test_a_url_that_is_none_is_said_to_be_none(tmp_path: Path):
    words = ("--url", "not a url", "--token", "x", "--data-dir", str(tmp_path))
    done = command("servers", "list", *words)
    assert done.code == 1
    assert "Traceback" not in done.err


def test_an_address_that_anybody_could_have_written_is_sent_no_token(up: Served):
    token = mint(up.data, "viewer")
    up.data.chmod(0o777)
    try:
        done = command("servers", "list", BASCULE_DATA_DIR=str(up.data), BASCULE_TOKEN=token)
    finally:
        up.data.chmod(0o700)
    assert done.code != 0
    assert "everybody may write to it" in done.err
    assert "Traceback" not in done.err
