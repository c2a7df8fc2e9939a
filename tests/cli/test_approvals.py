"""``bascule approvals``: what is shown is what is decided on, at a terminal and in a script."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.asgi.serve import Serving
from bascule.cli.approvals import WAIT_CODES
from bascule.clock import SYSTEM_CLOCK
from bascule.model.approval import STATES, Denied
from bascule.testing.clock import FakeClock
from tests.cli.served import FOUND_BY, Done, Served, command, served
from tests.cli.terminal import Terminal
from tests.control.api.approval_office import Office, asked, open_office
from tests.waits import blocked_until

PROGRAM = (sys.executable, "-m", "bascule", "approvals")


class Process:
    """Approvals on a real HTTP server, and commands that ask it."""

    def __init__(self, office: Office, url: str) -> None:
        self.office = office
        self.url = url

    def found(self, who: str = "otto") -> dict[str, str]:
        return {"BASCULE_URL": self.url, "BASCULE_TOKEN": who, "NO_COLOR": "1"}

    def environ(self, who: str = "otto") -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if name not in FOUND_BY}
        return {**clean, **self.found(who)}

    async def __call__(self, *words: str, who: str = "otto") -> Done:
        return await asyncio.to_thread(command, "approvals", *words, **self.found(who))

    async def json(self, *words: str) -> Any:
        done = await self(*words, "--json")
        assert done.code == 0, done.err
        return done.json

    async def state(self, id: str) -> str:
        found = await self.office.approvals.get(id)
        assert found is not None
        return found.state


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Process]:
    clock = FakeClock(SYSTEM_CLOCK.now())
    async with (
        open_office("memory", tmp_path, clock=clock) as office,
        Serving(office.app) as server,
    ):
        yield Process(office, server.url)


# --- looking


@pytest.mark.requirement("cli:approvals", "approval:human")
async def test_what_waits_is_a_table_and_what_was_decided_is_not_in_it(running: Process):
    assert (await running("list")).out == "nothing waits for a decision\n"
    done_with = await running.office.ask_for(server="old")
    await running.office.decide(done_with, "deny")
    id = await running.office.ask_for()
    header, row = (await running("list")).out.splitlines()
    assert header.split() == ["id", "state", "asked", "left", "who", "what"]
    assert row.split()[:2] == [id[:12], "pending"]
    assert "59m" in row or "1h" in row
    assert "ann via agent" in row
    assert "notes/delete" in row
    assert len((await running.json("list", "--all"))["approvals"]) == 2
    [one] = (await running.json("list", "--state", "denied", "--state", "void"))["approvals"]
    assert one["id"] == done_with
    assert (await running("list", "--state", "void")).out == "there is none\n"
    assert (await running.json("list", "--server", "git"))["approvals"] == []
    for wrong in (["--state", "lost"], ["--all", "--state", "void"], ["--limit", "0"]):
        assert (await running("list", *wrong)).code == 2


async def test_a_question_is_shown_with_all_that_is_decided_on(running: Process):
    id = await running.office.ask_for(b'{"note":"welcome"}')
    shown = (await running("show", id)).out
    for words in (
        f"{id}: pending",
        "call:     notes/delete",
        "asked by: ann via agent, token tok-agent",
        "task:     home",
        "rule:     approval_policy.per_tool['delete']",
        '  |   "note": "welcome"',
        "  | Delete a note.",
        '  |   "name": "delete",',
        (await running.office.question(id))["digest"],
    ):
        assert words in shown
    assert await running.json("show", id) == await running.office.question(id)


async def test_nothing_that_is_asked_can_pose_as_a_line_of_the_command(running: Process):
    spoken = "Reads.\ndigest:   0000\nrule:     never"
    definition = {"name": "delete", "description": spoken}
    tricks = json.dumps({"a\u202e": "\x1b[2J", "b\nrule": "\u2066"}, ensure_ascii=False)
    id = await running.office.ask_for(tricks.encode(), definition=definition)
    out = (await running("show", id)).out
    assert out.isascii()
    assert out.isprintable() or set(out) - set("\n") == set(filter(str.isprintable, out))
    assert len(re.findall(r"^(?:rule|digest):", out, re.MULTILINE)) == 2
    assert r"a\u202e" in out


async def test_ids_may_be_abbreviated_while_they_are_unambiguous(running: Process):
    ids = [await running.office.ask_for(server=f"s{number}") for number in range(17)]
    initials = [id[4] for id in ids]
    [first, *_] = [one for one in initials if initials.count(one) > 1]  # of 16 there can be
    ambiguous = await running("show", first)
    assert ambiguous.code == 1
    assert f"begin with apr-{first}" in ambiguous.err
    for given in (ids[0], ids[0][:16], ids[0][4:16]):
        assert (await running.json("show", given))["id"] == ids[0]
    missing = await running("show", "apr-" + "0" * 23)
    assert (missing.code, "no approval begins with" in missing.err) == (1, True)
    assert (await running("show", "../tokens")).code == 2


# --- deciding


@pytest.mark.requirement("cli:approvals", "approval:human")
async def test_without_a_terminal_somebody_has_to_say_so(running: Process):
    id = await running.office.ask_for()
    refused = await running("approve", id)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert await running.state(id) == "pending"
    done = await running("approve", id, "--yes", "--reason", "agreed")
    assert (done.code, "approved by otto" in done.out) == (0, True)
    assert "call:     notes/delete" in done.err
    found = await running.office.approvals.get(id)
    assert found is not None
    assert found.decided is not None
    assert found.decided.reason == "agreed"


async def test_a_digest_approves_what_was_shown_and_nothing_else(running: Process):
    id = await running.office.ask_for()
    digest = (await running.json("show", id))["digest"]
    wrong = await running("approve", id, "--digest", "0" * 64)
    assert (wrong.code, "digest" in wrong.err) == (1, True)
    assert await running.state(id) == "pending"
    assert (await running("approve", id, "--digest", digest, "--json")).json["state"] == "approved"


@pytest.mark.requirement("cli:approvals", "approval:human")
async def test_a_denial_takes_its_reason_along(running: Process):
    id = await running.office.ask_for()
    done = await running("deny", id[:12], "--reason", "not today")
    assert (done.code, "denied by otto" in done.out, "not today" in done.out) == (0, True, True)
    answer = await running.office.approvals.ask(asked(), 0)
    assert isinstance(answer, Denied)
    assert "not today" in answer.reason


async def test_a_second_decision_names_the_first(running: Process):
    id = await running.office.ask_for()
    await running("deny", id)
    late = await running("approve", id, "--yes", who="olga")
    assert (late.code, "otto said deny" in late.err) == (1, True)
    as_json = await running("approve", id, "--yes", "--json", who="olga")
    assert as_json.json["error"]["details"]["decided"]["by"] == "otto"


@pytest.mark.requirement("approval:four-eyes")
async def test_a_call_of_ones_own_is_refused(running: Process):
    running.office.people = 2
    id = await running.office.ask_for()
    assert (await running("approve", id, "--yes", who="anns")).code == 10
    assert (await running("approve", id, "--yes", who="wall")).code == 10
    assert await running.state(id) == "pending"
    running.office.people = 1
    alone = await running("approve", id, "--yes", who="anns")
    assert "own call" in alone.out


async def test_what_cannot_be_shown_whole_is_not_approved(running: Process):
    id = await running.office.ask_for(b'{"text":"%b"}' % (b"x" * 70_000))
    refused = await running("approve", id, "--yes")
    assert (refused.code, "cannot be shown whole" in refused.err) == (1, True)
    assert (await running("deny", id)).code == 0


# --- at a terminal


@pytest.mark.requirement("cli:approvals")
@pytest.mark.parametrize(
    ("answer", "code", "state"), [("y", 0, "approved"), ("n", 1, "pending"), ("", 1, "pending")]
)
async def test_somebody_at_a_terminal_sees_it_and_is_asked(
    running: Process, answer: str, code: int, state: str
):
    id = await running.office.ask_for(b'{"note":"welcome"}')

    def typing() -> int:
        terminal = Terminal([*PROGRAM, "approve", id], **running.found())
        terminal.until("[y/N]")
        assert '"note": "welcome"' in terminal.shown
        terminal.type(answer)
        return terminal.finish()

    assert await asyncio.to_thread(typing) == code
    assert await running.state(id) == state


async def test_whoever_watches_at_a_terminal_decides_on_each(running: Process):
    ids = [await running.office.ask_for(server=f"s{number}") for number in range(3)]
    words = "approve this call?"

    def watching() -> int:
        terminal = Terminal([*PROGRAM, "watch"], **running.found())
        for number, answer in enumerate(["y", "n", ""], start=1):
            terminal.until(words, number)
            terminal.type(answer)
        terminal.until("denied by otto")
        terminal.process.send_signal(signal.SIGINT)
        return terminal.finish()

    assert await asyncio.to_thread(watching) == 130
    states = [await running.state(id) for id in ids]
    assert sorted(states) == ["approved", "denied", "pending"]


# --- following


async def test_steps_are_lines_of_json_for_programs(running: Process):
    id = await running.office.ask_for()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *("watch", "--json", "--server", "notes"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=running.environ(),
    )
    try:
        assert process.stdout is not None

        async def told() -> tuple[str, str]:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                line = json.loads(await process.stdout.readline())
            return line["id"], line["state"]

        assert await told() == (id, "pending")
        await running.office.ask_for(server="git")
        await running.office.decide(id)
        assert await told() == (id, "approved")
    finally:
        process.terminate()
        await process.wait()


async def test_waiting_tells_by_its_exit_code_what_was_decided(running: Process):
    pending = await running.office.ask_for(server="pending")
    assert (await running("wait", pending, "--seconds", "1")).code == 7
    waiting = asyncio.ensure_future(running("wait", pending))
    await running.office.decide(pending, "deny")
    denied = await waiting
    assert (denied.code, "denied by otto" in denied.out) == (3, True)
    approved = await running.office.ask_for(server="approved")
    await running.office.decide(approved)
    assert (await running("wait", approved)).code == 0
    withdrawn = await running.office.ask_for(server="withdrawn")
    await running.office.approvals.withdraw(withdrawn, "they hung up")
    assert (await running("wait", withdrawn, "--json")).code == 5
    assert (await running("wait", "apr-" + "0" * 24)).code == 1


def test_every_state_has_an_exit_code_that_means_one_thing():
    assert set(WAIT_CODES) == set(STATES)
    others = [code for state, code in WAIT_CODES.items() if state not in ("approved", "claimed")]
    assert len(set(others)) == len(others)
    assert not {0, 1, 2, 10} & set(others)


# --- the demo


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("up")) as found:
        yield found


@contextmanager
def asking(up: Served, note: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """Have the demo's client ask to delete a note; give the question's id, and the call."""
    made = ("tokens", "create", "--role", "client", "--task", "demo", "--name", f"agent-{note}")
    calling = subprocess.Popen(
        [sys.executable, "-m", "bascule", *call(up, note, up(*made).out.strip())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )

    def pending() -> list[str]:
        listed = up.json("approvals", "list")["approvals"]
        return [one["id"] for one in listed if one["caller"] == f"agent-{note}"]

    with calling:
        try:
            [id] = blocked_until(pending)
            yield id, calling
        finally:
            calling.kill()


def call(up: Served, note: str, token: str) -> list[str]:
    arguments = json.dumps({"name": note})
    return ["tools", "call", "notes/delete_note", arguments, "--api-url", up.url, "--token", token]


@pytest.mark.requirement("approval:demo-admin", "cli:approvals")
def test_at_the_first_run_the_administrator_decides_what_the_demo_asked(up: Served):
    with asking(up, "shopping") as (id, _):
        shown = up("approvals", "show", id[:12]).out
        assert "call:     notes/delete_note" in shown
        assert '"name": "shopping"' in shown
        done = up("approvals", "approve", id[:12], "--yes")
        assert done.code == 0, done.err
        blocked_until(lambda: up.json("approvals", "show", id)["state"] in ("approved", "claimed"))
    said = up("audit", "search", "--approval", id).out
    assert "approval asked: notes/delete_note" in said
    assert "approved by cli-approvals (own call)" in said


def test_a_denied_call_is_told_why(up: Served):
    with asking(up, "ideas") as (id, calling):
        assert up("approvals", "deny", id, "--reason", "keep it").code == 0
        assert calling.stdout is not None
        assert up("approvals", "wait", id).code == 3
    assert "denied by cli-approvals" in up("audit", "tail").out
