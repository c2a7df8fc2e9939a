"""``bascule tools call`` at a process, for a tool that somebody else has to approve."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bascule.clock import seconds_of
from tests.cli.served import Done, process
from tests.cli.test_tools import Terminal
from tests.doors.asking import Scene, asked, decided, scene

__all__ = ["scene"]
CALL = ("tools", "call", "fs/delete", "--arg", "text=x")


def words(scene: Scene, home: Path, *more: str) -> list[str]:
    place = ("--url", scene.url, "--token", scene.token, "--data-dir", str(home))
    return [*CALL, *place, *more]


async def called(scene: Scene, home: Path, *more: str) -> Done:
    return await asyncio.to_thread(process, *words(scene, home, *more))


@pytest.mark.requirement("approval:end-to-end")
async def test_without_a_terminal_it_says_how_to_approve_and_the_next_one_runs(
    scene: Scene, tmp_path: Path
):
    first = await called(scene, tmp_path)
    question = await asked(scene.approvals)
    assert first.code == 11
    assert question.id in first.err
    assert f"approvals approve {question.id}" in first.err
    assert scene.token not in first.err
    plain = await called(scene, tmp_path, "--no-wait", "--json")
    assert plain.code == 11
    details = plain.json["error"]["details"]
    assert details["approval_id"] == question.id
    assert seconds_of(details["expires_at"]) == pytest.approx(question.expires_at, abs=0.01)
    await decided(scene.approvals)
    done = await called(scene, tmp_path)
    assert (done.code, done.out.strip(), scene.runs) == (0, "gone", 1)


async def test_it_waits_as_long_as_it_is_told_and_says_for_what(scene: Scene, tmp_path: Path):
    calling = asyncio.ensure_future(called(scene, tmp_path, "--wait", "60"))
    question = await decided(scene.approvals, "deny", "not today")
    denied = await calling
    assert denied.code == 10
    assert "not today" in denied.err
    again = await called(scene, tmp_path, "--wait", "0.01")
    assert (again.code, question.id in again.out) == (10, False)
    other = await called(scene, tmp_path, "--arg", "count=1", "--wait", "0.01")
    pending = await asked(scene.approvals)
    assert other.code == 11
    assert f"approval needed: {pending.id}" in other.err
    assert scene.runs == 0


async def test_a_terminal_waits_by_itself(scene: Scene, tmp_path: Path):
    command = [sys.executable, "-m", "bascule", *words(scene, tmp_path)]
    terminal = Terminal(command, COLUMNS="200")
    await asyncio.to_thread(terminal.until, "waiting for somebody to approve apr-")
    question = await decided(scene.approvals)
    assert await asyncio.to_thread(terminal.finish) == 0
    assert f"approvals approve {question.id}" in terminal.shown
    assert "gone" in terminal.shown


async def test_an_interrupt_takes_the_question_back(scene: Scene, tmp_path: Path):
    command = [sys.executable, "-m", "bascule", *words(scene, tmp_path)]
    terminal = Terminal(command, COLUMNS="200")
    await asyncio.to_thread(terminal.until, "approval needed")
    question = await asked(scene.approvals)
    terminal.process.send_signal(2)
    assert await asyncio.to_thread(terminal.finish) == 130
    async with asyncio.timeout(30):
        settled = await scene.approvals.settled(question.id, None)
    assert settled.state == "withdrawn"


def test_over_files_nobody_else_is_waited_for(tmp_path: Path):
    for more in (("--wait", "1"), ("--no-wait",)):
        done = process(*CALL, "--registry-dir", str(tmp_path), *more)
        assert (done.code, "--no-wait" in done.err) == (2, True)
