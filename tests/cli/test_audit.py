"""``bascule audit``: of a process over HTTP, and of the files of a data directory alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bascule.asgi.guard import GuardedApp
from bascule.asgi.serve import Serving
from bascule.audit.anchors import Anchors
from bascule.audit.events import Event
from bascule.audit.ledger_file import ANCHORS_NAME, FILE_NAME, MIGRATIONS
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.audit import audit_routes
from bascule.db.sqlite import Database
from bascule.model.role import Role
from tests.asgi.caller import make_tokens
from tests.audit import small_ledger
from tests.audit.file_trail import FileTrail
from tests.audit.ledger_rows import (
    START,
    approval_step,
    intent,
    journal_id,
    opened,
    outcome,
    refused,
    spoil,
    token_made,
    write_ledger,
)
from tests.cli.served import FOUND_BY, Done, command, served
from tests.waits import SOON_SECONDS

EVENTS = [
    opened(timestamp=START),
    intent("s1-1", timestamp=START + 1),
    outcome("s1-1", timestamp=START + 2),
    outcome("s1-2", "denied", "mcp_policy_denied", server="git", tool="push", timestamp=START + 3),
    intent("s1-3", timestamp=START + 4, caller="bob"),
    token_made(timestamp=START + 5),
]


class Process:
    """The routes of the audit trail on a real HTTP server, and commands that ask it."""

    def __init__(self, trail: FileTrail) -> None:
        self.trail = trail
        self.tokens = make_tokens()
        self.app = GuardedApp(audit_routes(trail, clock=SYSTEM_CLOCK), self.tokens)
        self.url = ""

    async def found(self, role: Role) -> dict[str, str]:
        token = (await self.tokens.mint("test", role)).token
        return {"BASCULE_URL": self.url, "BASCULE_TOKEN": token}

    async def __call__(self, *words: str, role: Role = "admin") -> Done:
        return await asyncio.to_thread(command, "audit", *words, **await self.found(role))


@asynccontextmanager
async def open_process(folder: Path) -> AsyncGenerator[Process]:
    database = Database(folder / FILE_NAME)
    await database.open(MIGRATIONS)
    try:
        process = Process(FileTrail(database))
        await process.trail.write(*EVENTS)
        async with Serving(process.app) as server:
            process.url = server.url
            yield process
    finally:
        await database.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Process]:
    async with open_process(tmp_path) as process:
        yield process


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that nothing serves."""
    return filled(tmp_path, EVENTS)


def filled(folder: Path, events: Sequence[Event]) -> Path:
    folder.chmod(0o700)
    asyncio.run(write_ledger(folder, events))
    return folder


def on(folder: Path, *words: str) -> Done:
    return command("audit", *words, "--data-dir", str(folder))


# --- reading


@pytest.mark.requirement("cli:audit", "audit:query")
async def test_the_process_and_its_files_tell_the_same(running: Process, tmp_path: Path):
    for words in (
        ["tail"],
        ["tail", "-n", "2", "--json"],
        ["search", "--server", "git"],
        ["search", "--status", "unknown", "--json"],
        ["search", "--since", f"{START + 1}", "--until", "2023-11-14T22:13:23Z", "--json"],
        ["show", "s1-1"],
        ["show", "s1-1", "--json"],
        ["export"],
        ["export", "--event", "call"],
        ["verify", "--json"],
    ):
        there, here = await running(*words), await asyncio.to_thread(on, tmp_path, *words)
        assert (there.code, here.code) == (0, 0), there.err + here.err
        assert there.out == here.out
        assert there.out


def test_the_last_entries_come_the_newest_last_and_each_call_on_a_line(data: Path):
    lines = on(data, "tail").out.splitlines()
    assert [line.split() for line in lines] == [
        ["time", "caller", "task", "what", "status", "code", "ms", "request"],
        ["2023-11-14T22:13:20Z", "ann", "review", "session", "opened"],
        ["2023-11-14T22:13:22Z", "ann", "review", "fs/read", "ok", "12", "s1-1"],
        [
            *("2023-11-14T22:13:23Z", "ann", "review", "git/push"),
            *("denied", "mcp_policy_denied", "12", "s1-2"),
        ],
        ["2023-11-14T22:13:24Z", "bob", "review", "fs/read", "unknown", "s1-3"],
        ["2023-11-14T22:13:25Z", "setup", "token", "made:", "wall"],
    ]
    starts = {
        line.index(word) for line, word in zip(lines[1:3], ("session", "fs/read"), strict=True)
    }
    assert starts == {lines[0].index("what")}
    assert len(on(data, "tail", "-n", "1").out.splitlines()) == 2


def numbers(done: Done) -> list[int]:
    assert done.code == 0, done.err
    return [entry["number"] for entry in done.json["entries"]]


@pytest.mark.requirement("cli:audit")
def test_a_search_finds_by_every_option(data: Path):
    found = {
        "--server git": [4],
        "--tool read": [5, 3],
        "--task review": [5, 4, 3, 1],
        "--caller bob": [5],
        "--person eve": [],
        "--status denied": [4],
        "--code mcp_policy_denied": [4],
        "--event token_made": [6],
        "--request s1-1": [3],
        "--session s1": [5, 4, 3, 1],
        "--approval a1": [],
        "--token-id t9": [6],
        f"--since {START + 5}": [6],
        "--until 2023-11-14T22:13:20": [1],
        "--since 1h": [],
        "--limit 2": [6, 5],
        "--before 4": [3, 1],
    }
    for options, expected in found.items():
        assert numbers(on(data, "search", *options.split(), "--json")) == expected, options


def test_the_steps_of_an_approval_are_told_in_words(tmp_path: Path):
    folder = filled(
        tmp_path,
        [
            approval_step("pending"),
            approval_step("approved", by="otto", self_approved=True),
            approval_step("denied", by="olga", approval="apr-2"),
            approval_step("claimed", "s1-2", by="bascule"),
            intent("s1-2", approval="apr-1", tool="delete"),
            approval_step("expired", by="bascule", approval="apr-3"),
        ],
    )
    said = on(folder, "tail").out
    for words in (
        "approval asked: fs/delete",
        "approved by otto (own call): fs/delete",
        "denied by olga: fs/delete",
        "approval used: fs/delete",
        "approval expired: fs/delete",
    ):
        assert words in said
    life = on(folder, "show", "s1-2").out
    assert life.startswith("call s1-2 of fs/delete: unknown\n")
    for words in ("approval asked  (row 1)", "approved by otto (own call)  (row 2)", "(row 5)"):
        assert words in life
    assert "olga" not in life


def test_a_search_says_how_to_go_on(data: Path):
    done = on(data, "search", "--limit", "2")
    assert done.err == "older ones: --before 5\n"
    assert on(data, "search", "--before", "5").err == ""
    nothing = on(data, "search", "--caller", "nobody")
    assert (nothing.code, nothing.out) == (0, "nothing found\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "--since", "yesterday"], "must be a time such as"),
        (["search", "--status", "done"], "--status"),
        (["search", "--code", "timeout"], "--code"),
        (["search", "--event", "cal"], "did you mean 'call'?"),
        (["search", "--limit", "0"], "must be a number, 1 or more"),
        (["search", "--sever", "fs"], "did you mean --server"),
        (["show"], "REQUEST_ID"),
    ],
)
def test_what_cannot_be_understood_is_wrong_usage(data: Path, words: list[str], said: str):
    done = on(data, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_one_call_is_shown_with_all_that_was_written(data: Path):
    lines = on(data, "show", "s1-1").out.splitlines()
    assert lines[0] == "call s1-1 of fs/read: ok"
    assert "2023-11-14T22:13:21Z  call_intent  (row 2)" in lines
    assert '  arguments: {"path": "<string>"}' in lines
    missing = on(data, "show", "s9-9")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == "error: nothing is written about a call s9-9\n"


def test_a_tool_of_the_callers_own_is_said_to_be_one(tmp_path: Path):
    own = structs.replace(
        outcome("s1-1", server="", tool="count"), layer="caller", reason="own_tool"
    )
    filled(tmp_path, [own])
    for words in (["tail"], ["search", "--tool", "count"], ["show", "s1-1"]):
        assert "count (own tool)" in on(tmp_path, *words).out


def test_what_others_wrote_cannot_move_the_cursor(tmp_path: Path):
    evil = "\x1b[2Jann\r\nroot\u202e"
    filled(tmp_path, [outcome("s1-1", caller=evil, tool=evil), token_made(name=evil)])
    for words in (["tail"], ["search"], ["show", "s1-1"]):
        said = on(tmp_path, *words).out
        assert "\\x1b" in said
        assert not any(bad in said for bad in ("\x1b", "\r", "\u202e"))


# --- following


class Following:
    """``audit tail --follow`` as people run it, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(SOON_SECONDS):
            return (await self.process.stdout.readline()).decode()

    async def ended(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        async with asyncio.timeout(SOON_SECONDS):
            said = await self.process.stderr.read()
            return await self.process.wait(), said.decode()


@asynccontextmanager
async def following(process: Process | None, *words: str) -> AsyncGenerator[Following]:
    clean = {name: value for name, value in os.environ.items() if name not in FOUND_BY}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bascule", "audit", "tail", "--follow", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**clean, **(await process.found("viewer") if process is not None else {})},
    )
    try:
        yield Following(started)
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


@pytest.mark.requirement("cli:audit")
async def test_who_follows_sees_the_last_entries_and_then_each_call_as_it_ends(running: Process):
    running.trail.live.add(journal_id(1))
    async with following(running, "-n", "1", "--json") as tail:
        assert json.loads(await tail.line())["number"] == 6
        await running.trail.write(intent("s2-1"))
        await running.trail.write(outcome("s2-1", "failed", "mcp_timeout"))
        entry = json.loads(await tail.line())
        assert (entry["number"], entry["status"], entry["event"]["code"]) == (
            8,
            "failed",
            "mcp_timeout",
        )
        tail.process.send_signal(signal.SIGINT)
        assert await tail.ended() == (130, "")


async def test_lines_that_come_later_are_aligned_and_the_end_of_the_process_is_told(
    tmp_path: Path,
):
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(open_process(tmp_path))
        async with following(process, "-n", "2", "--caller", "ann") as tail:
            header, *before = [await tail.line() for _ in range(3)]
            await process.trail.write(refused())
            later = await tail.line()
            assert {line.index("review") for line in (*before, later)} == {header.index("task")}
            assert later.split()[3:6] == ["session", "refused:", "git"]
            await stack.aclose()
            assert await tail.ended() == (1, "error: the process has ended\n")


def test_nothing_can_be_followed_without_a_process(data: Path):
    done = on(data, "tail", "--follow")
    assert (done.code, done.out) == (1, "")
    assert "nothing serves" in done.err


# --- rows


def test_an_export_goes_to_a_new_private_file_and_can_be_verified(data: Path):
    target = data / "rows.jsonl"
    done = on(data, "export", "--output", str(target))
    assert (done.code, done.out, done.err) == (0, "", f"6 rows in {target}\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert len(target.read_bytes().splitlines()) == 6
    assert on(data, "verify", "--file", str(target)).code == 0
    again = on(data, "export", "--output", str(target))
    assert (again.code, "exists: name another" in again.err) == (1, True)
    other = data / "other.jsonl"
    some = on(data, "export", "--status", "denied", "--output", str(other), "--json")
    assert some.json == {"output": str(other), "rows": 1}


def test_an_export_that_fails_leaves_no_half_of_a_file(data: Path):
    target = data / "rows.jsonl"
    text = data / "text.db"
    text.write_bytes(b"x" * 5_000)
    done = on(data, "export", "--file", str(text), "--output", str(target))
    assert done.code == 1
    assert "not a database" in done.err
    assert not target.exists()
    wrong = on(data, "export", "--output", str(data / "missing" / "rows.jsonl"))
    assert (wrong.code, "--output: " in wrong.err) == (1, True)


def test_a_directory_without_a_ledger_is_told_apart_from_an_empty_ledger(tmp_path: Path):
    tmp_path.chmod(0o700)
    for words in (["tail"], ["search"], ["export"], ["verify"]):
        done = on(tmp_path, *words)
        assert (done.code, done.out) == (1, "")
        assert f"{FILE_NAME} does not exist; it is made by: " in done.err
    assert list(tmp_path.iterdir()) == []


# --- verifying


def anchored(folder: Path) -> Anchors:
    """Make a ledger with anchors in a folder; its last rows have none."""
    folder.chmod(0o700)
    with closing(small_ledger.empty(folder / FILE_NAME)) as connection:
        return small_ledger.filled(connection, folder)


@pytest.mark.requirement("cli:audit")
def test_a_ledger_is_verified_with_the_key_and_the_anchors_that_somebody_kept(tmp_path: Path):
    anchors = anchored(tmp_path)
    key = tmp_path / "ledger.pub"
    key.write_text(anchors.public_key() + "\n", encoding="utf-8")
    for given in (anchors.public_key(), str(key)):
        done = on(tmp_path, "verify", "--key", given, "--anchors", str(anchors.file))
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[:2] == ["ok: nothing was changed", "rows: 12, 1 to 12"]
        assert lines[2].startswith("anchors: 3, the last of 1970-01-01T00:00:09Z, signed by key ")
        assert lines[3:] == ["not covered by an anchor: the last 3 rows"]
    inside = on(tmp_path, "verify")
    assert inside.code == 0
    assert "the key was taken from the ledger itself" in inside.out


@pytest.mark.requirement("cli:audit")
def test_a_changed_row_is_named_and_the_exit_code_says_so(tmp_path: Path):
    anchors = anchored(tmp_path)
    spoil(tmp_path / FILE_NAME, 5, b'{"event":"nothing"}')
    words = ["verify", "--key", anchors.public_key(), "--anchors", str(anchors.file)]
    done = on(tmp_path, *words)
    assert done.code == 1
    assert "problem: row 5: changed" in done.out
    as_json = on(tmp_path, *words, "--json")
    assert (as_json.code, as_json.json["ok"]) == (1, False)
    assert as_json.json["problems"][0]["row"] == 5


def test_a_key_that_is_none_and_a_file_that_is_missing_are_told_by_name(tmp_path: Path):
    anchored(tmp_path)
    cases: list[tuple[list[str], str]] = [
        (["--key", "ed25519:short"], "public_key: must be ed25519:"),
        (["--anchors", str(tmp_path / "none.jsonl")], "--anchors: "),
        (["--file", str(tmp_path / "none.db")], "none.db"),
    ]
    for words, said in cases:
        done = on(tmp_path, "verify", *words)
        assert (done.code, done.out) == (1, "")
        assert said in done.err


async def test_a_process_is_asked_to_verify_its_own_ledger_and_nothing_else(running: Process):
    assert "ok: " in (await running("verify", role="viewer")).out
    spoil(running.trail.database.path, 2, b"{}")
    changed = await running("verify", role="viewer")
    assert (changed.code, "problem: row 2" in changed.out) == (1, True)
    mixed = await running("verify", "--api-url", running.url, "--key", "ed25519:x")
    assert mixed.code == 2


# --- signing


@pytest.mark.requirement("cli:audit")
async def test_a_checkpoint_is_made_by_the_process_and_only_for_administrators(running: Process):
    done = await running("checkpoint", "--new-key")
    assert (done.code, done.out) == (0, '{"kind":"checkpoint"}\n')
    as_json = await running("checkpoint", "--json")
    assert as_json.json == {"anchor": '{"kind":"checkpoint"}'}
    refused_one = await running("checkpoint", role="operator")
    assert (refused_one.code, "audit:checkpoint" in refused_one.err) == (10, True)
    assert running.trail.checkpoints == [True, False]


def test_without_a_process_the_command_signs_what_the_ledger_has(data: Path):
    first = on(data, "checkpoint").out.strip()
    assert json.loads(first)["number"] == len(EVENTS)
    again = json.loads(on(data, "checkpoint", "--new-key", "--json").json["anchor"])
    assert again["public_key"] != json.loads(first)["public_key"]
    for key in (json.loads(first)["public_key"], again["public_key"]):
        found = on(data, "verify", "--key", key, "--json").json
        assert (found["ok"], found["unprotected"], found["key_from"]) == (True, 0, "given")


def test_a_ledger_whose_anchors_are_gone_is_not_called_protected(data: Path):
    on(data, "checkpoint")
    elsewhere = data / "elsewhere"
    (data / ANCHORS_NAME).rename(elsewhere)
    beside = command("audit", "verify", "--json", "--data-dir", str(data))
    assert beside.json["anchors"] == 1  # the ledger has a copy of them
    settings = {"BASCULE_LEDGER_ANCHOR_FILE": str(elsewhere)}
    named = command("audit", "verify", "--json", "--data-dir", str(data), **settings)
    elsewhere.unlink()
    gone = command("audit", "verify", "--json", "--data-dir", str(data), **settings)
    assert (named.json["anchors"], named.json["unprotected"]) == (1, 0)
    assert (gone.json["anchors"], gone.json["unprotected"]) == (0, len(EVENTS))


async def test_every_failure_is_a_document_too(running: Process):
    forbidden: Any = (await running("search", "--json", role="node")).json
    assert forbidden["error"]["code"] == "forbidden"
    missing = await running("show", "s9-9", "--json")
    assert (missing.code, missing.json["error"]["code"]) == (1, "not_found")


# --- a whole process


@pytest.mark.requirement("cli:audit", "audit:query")
def test_what_a_real_process_does_can_be_looked_up_while_it_runs_and_after(tmp_path: Path):
    with served(tmp_path) as up:
        assert up("tools", "call", "notes/list_notes", "{}").code == 0
        assert up("tools", "call", "notes/nothing", "{}").code == 1
        up.json("audit", "checkpoint")  # by then all of it is in the database
        calls = up.json("audit", "search", "--server", "notes", "--event", "call")["entries"]
        assert [call["status"] for call in calls] == ["failed", "ok"]
        life = up.json("audit", "show", calls[1]["event"]["request_id"])
        assert [entry["event"]["event"] for entry in life["entries"]] == ["call_intent", "call"]
        found = up.json("audit", "verify")
        there = up.json("audit", "verify", "--api-url", up.url)
        assert (found["ok"], there["ok"], there["anchors"] > 0) == (True, True, True)
        shown = up("audit", "tail", "-n", "50").out
        assert "notes/list_notes" in shown
    after = up.json("audit", "search", "--server", "notes", "--event", "call")["entries"]
    assert after == calls
    assert up.json("audit", "verify")["unprotected"] == 0


async def test_a_real_process_is_followed_and_a_token_that_was_made_for_it_ends(tmp_path: Path):
    with served(tmp_path) as up:
        words = ("-n", "1", "--event", "call", "--json", "--data-dir", str(tmp_path))
        call = partial(up, "tools", "call", "notes/list_notes", "{}")
        assert (await asyncio.to_thread(call)).code == 0
        async with following(None, *words) as tail:
            first = json.loads(await tail.line())
            assert (await asyncio.to_thread(call)).code == 0
            second = json.loads(await tail.line())
            assert second["event"]["tool_name"] == first["event"]["tool_name"] == "list_notes"
            assert second["number"] > first["number"]
            tail.process.send_signal(signal.SIGINT)
            assert (await tail.ended())[0] == 130
        names = (await asyncio.to_thread(up.json, "tokens", "list"))["tokens"]
        assert not [token for token in names if token["name"].startswith("cli")]
