"""The guests of ``guests/``, run by the command: at a running process, over files, and alone."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checks.guests import MOST_BYTES
from tests.cli.served import FOUND_BY, Served, command, served
from tests.cli.terminal import Terminal

GUESTS = Path(__file__).parents[2] / "guests"
NOTE = "These notes live in the memory of the demo server"
REHEARSAL = "I am a rehearsal, not a model."
#: What each sample says, in this order.
SAYS = {
    "hello": ["Hello, world!\n"],
    "chat": [REHEARSAL],
    "guest_tool": [REHEARSAL, 'count_words said: {"words":3}\n'],
    "list_and_call": ["delete_note\nlist_notes\nread_note\n", NOTE],
    "both": ['"name":"welcome"', f"{REHEARSAL} mcp__notes__read_note said", NOTE, "DONE"],
    "streaming": [REHEARSAL, "chunks: several\n"],
    "errors": [
        "a server that there is not: ENOENT\n",
        "a handle that there is not: EBADF\n",
        "a pointer outside the memory: EFAULT\n",
        "a parameter of the wrong type: EINVAL\n",
        "a parameter that is the task's: EACCES\n",
        "a server that is not the task's: EACCES\n",
        "a buffer that is too short: ENOSPC\n",
        "with the length that was told: done\n",
        "arguments that do not fit: mcp_invalid_arguments\n",
    ],
}
#: Those that need no task.
ALONE = ("hello", "chat", "guest_tool", "streaming")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOUND_BY, "BASCULE_TASK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up")) as up:
        yield up


def sample(name: str) -> str:
    return str(GUESTS / f"{name}.wasm")


def says_all(said: str, expected: list[str]) -> bool:
    """Say whether the texts stand in another, one after the other."""
    at = 0
    for text in expected:
        at = said.find(text, at)
        if at < 0:
            return False
        at += len(text)
    return True


def test_every_sample_is_known_here():
    assert {path.stem for path in GUESTS.glob("*.c")} == set(SAYS)


def test_every_module_is_small_and_holds_nothing_of_the_machine_that_built_it():
    for module in GUESTS.glob("*.wasm"):
        content = module.read_bytes()
        assert len(content) <= MOST_BYTES
        assert not re.search(rb"(/|\\)(work|home|root|tmp|usr|Users)\b|producers|\.c\b", content)


@pytest.mark.requirement("hostcalls:run", "hostcalls:samples")
@pytest.mark.parametrize("name", SAYS)
def test_a_sample_runs_at_a_process(up: Served, name: str):
    done = up("run", sample(name), "--model", "rehearsal")
    assert done.code == 0, done.err
    assert says_all(done.out, SAYS[name]), done.out


@pytest.mark.parametrize("name", ALONE)
def test_a_sample_without_tools_needs_no_task(name: str):
    done = command("run", sample(name), "--model", "rehearsal")
    assert done.code == 0, done.err
    assert says_all(done.out, SAYS[name]), done.out


@pytest.mark.requirement("hostcalls:task-required")
def test_without_a_task_there_are_no_servers():
    done = command("run", sample("list_and_call"))
    assert (done.code, done.out, done.err) == (1, "", "error: mcp_open: EACCES\n")


class Records:
    """A directory with the demo server and a task that may use it."""

    def __init__(self, path: Path, **fields: object) -> None:
        self._path = path
        demo = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
        server = {"server_id": "notes", "transport": "stdio", "allowed_tools": ["*"]}
        self._write("notes", **server, stdio=demo, **fields)
        mcp = {"enabled": True, "default_server_ids": ["notes"]}
        self._write("tasks/demo", task_id="demo", mcp=mcp)

    def _write(self, name: str, **record: object) -> None:
        file = self._path / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(record), encoding="utf-8")

    @property
    def words(self) -> tuple[str, ...]:
        return ("--registry-dir", str(self._path), "--task", "demo")


def test_a_guest_runs_over_files_with_nothing_else_running(tmp_path: Path):
    words = ("--model", "rehearsal", *Records(tmp_path).words, "--json")
    done = command("run", sample("both"), *words)
    assert done.code == 0, done.err
    assert says_all(done.out, SAYS["both"]), done.out
    told = json.loads(done.out.splitlines()[-1])
    assert (told["exit"], told["reason"], told["calls"]) == (0, "exited", 3)
    assert told["peak_memory"] > 0


def test_over_files_whoever_runs_the_guest_approves_its_calls(tmp_path: Path):
    records = Records(tmp_path, approval_policy={"default": "always"})
    words = ("run", sample("list_and_call"), *records.words)
    refused = command(*words, "--no-input")
    assert refused.code == 1
    assert "mcp_approval_required" in refused.err
    assert NOTE not in refused.out
    approved = command(*words, "--yes")
    assert (approved.code, approved.err) == (0, "")
    assert NOTE in approved.out
    terminal = Terminal([sys.executable, "-m", "bascule", *words])
    terminal.until("call it? [y/N]")
    terminal.type("y")
    assert terminal.finish() == 0
    assert NOTE in terminal.shown


@pytest.mark.requirement("hostcalls:run:one-loop")
def test_the_loop_runs_here_and_not_at_the_process_as_well(up: Served, tmp_path: Path):
    """The guest offers no tools: with its own on, the process would call one and say the note."""
    narrow = tmp_path / "session.json"
    narrow.write_text('{"mcp.enabled": false}', encoding="utf-8")
    asking = 'call notes.read_note with {"name": "welcome"}'
    words = ("--model", "rehearsal", "--session", str(narrow), "--arg", asking)
    done = up("run", sample("chat"), *words)
    assert done.code == 0, done.err
    assert REHEARSAL in done.out
    assert NOTE not in done.out


def test_a_model_that_the_process_does_not_have_is_named(up: Served):
    done = up("run", sample("chat"), "--model", "rehersal")
    assert done.code == 1
    assert "did you mean" in done.err
    assert "rehearsal" in done.err


def test_a_task_that_there_is_not_is_named(up: Served):
    done = up("run", sample("hello"), "--task", "dmeo")
    assert (done.code, done.out) == (1, "")
    assert "did you mean demo" in done.err


def test_a_task_of_the_process_names_what_is_run(up: Served, tmp_path: Path):
    module = Path(sample("hello"))
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    executable = {"path": str(module), "checksum_sha256": digest, "args": ["Ada"]}
    file = tmp_path / "task.json"
    file.write_text(json.dumps({"task_id": "nightly", "executable": executable}), encoding="utf-8")
    assert up("tasks", "apply", str(file)).code == 0
    done = up("run", "--task", "nightly")
    assert (done.code, done.out) == (0, "Hello, Ada!\n"), done.err
    assert up("tasks", "set", "nightly", f"executable.checksum_sha256={'0' * 64}").code == 0
    wrong = up("run", "--task", "nightly")
    assert (wrong.code, wrong.out) == (2, "")
    assert f"executable.checksum_sha256 is {'0' * 64}" in wrong.err
    assert up("tasks", "set", "nightly", f"executable.checksum_sha256={digest}").code == 0
    assert up("tasks", "set", "nightly", 'executable.env={"TOKEN": "x"}').code == 0
    hidden = up("run", "--task", "nightly")
    assert (hidden.code, hidden.out) == (2, "")
    assert "--env TOKEN=VALUE" in hidden.err
    assert up("run", "--task", "nightly", "--env", "TOKEN=y").code == 0
    assert up("run", "--task", "nihtly").code == 1
    assert up("run", "--task", "nightly", "--env", "TOKEN=y", "--server", "notes").code == 10
    assert up("tasks", "remove", "nightly").code == 0
