"""``bascule run``: a guest's words, its end, and what it takes to run one."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from tests.cli.served import FOUND_BY, Done, command
from tests.cli.terminal import Terminal

END_SECONDS = 30


def guest(code: str = "", *, data: str = "", imports: str = "") -> str:
    """Return a guest as WAT: ``$say`` writes bytes, ``$log`` logs them, from 100 on."""
    return f"""
    (module
      (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
      (import "spear" "sleep_ms" (func $sleep (param i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
      {imports}
      (memory (export "memory") 1)
      (data (i32.const 100) "{data}")
      (func $say (param $fd i32) (param $length i32)
        (i32.store (i32.const 0) (i32.const 100))
        (i32.store (i32.const 4) (local.get $length))
        (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 20))))
      (func (export "_start") {code}))
    """


HELLO = guest(
    """(drop (call $log (i32.const 2) (i32.const 100) (i32.const 5)))
    (call $say (i32.const 1) (i32.const 6))
    (call $say (i32.const 2) (i32.const 6))""",
    data="hello\\0a",
)
LOOP = guest("(call $say (i32.const 1) (i32.const 6)) (loop br 0)", data="ready\\0a")
SLEEP = guest(
    "(call $say (i32.const 1) (i32.const 6)) (call $sleep (i32.const 600000))", data="ready\\0a"
)
LARGE = '(module (memory (export "memory") 33) (func (export "_start")))'
ENDLESS = guest("(loop (call $say (i32.const 1) (i32.const 6)) br 0)", data="ready\\0a")
TRAP = guest("unreachable")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOUND_BY, "BASCULE_TASK"):
        monkeypatch.delenv(name, raising=False)


class Folder:
    """A folder with guests."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> Path:
        file = self.path / "guest.wasm"
        file.write_bytes(wat2wasm(text))
        return file

    def run(self, text: str, *words: str | Path) -> Done:
        return command("run", str(self.write(text)), *map(str, words))

    def json(self, text: str, *words: str | Path) -> dict[str, Any]:
        return json.loads(self.run(text, *words, "--json").out.splitlines()[-1])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.requirement("hostcalls:run")
def test_what_a_guest_says_goes_where_it_belongs(folder: Folder):
    done = folder.run(HELLO)
    assert (done.code, done.out, done.err) == (0, "hello\n", "info: hello\nhello\n")


@pytest.mark.requirement("hostcalls:run:exit")
@pytest.mark.parametrize(
    ("text", "words", "code", "said"),
    [
        (guest("(call $exit (i32.const 7))"), (), 7, ""),
        (guest("(call $exit (i32.const 300))"), (), 1, ""),
        (guest(), ("--memory", "9" * 30, "--fuel", "9" * 30), 0, ""),
        (TRAP, (), 1, "error: the guest trapped: unreachable"),
        (LOOP, ("--fuel", "10000"), 1, "fuel of 10000"),
        (LOOP, ("--timeout", "0.05"), 124, "ended after 0.05 s (--timeout)"),
        (SLEEP, ("--timeout", "0.05"), 124, "ended after 0.05 s (--timeout)"),
        (ENDLESS, ("--output-limit", "600"), 1, "more than 600 bytes (--output-limit)"),
        (LARGE, ("--memory", "2"), 2, "run it with --memory 3 or more"),
    ],
    ids=["own", "too-high", "no-limits", "trap", "fuel", "loop", "sleep", "output", "memory"],
)
def test_the_exit_code_says_how_it_ended(
    folder: Folder, text: str, words: tuple[str, ...], code: int, said: str
):
    done = folder.run(text, *words)
    assert done.code == code, done.err
    assert said in done.err


@pytest.mark.requirement("hostcalls:run:exit")
def test_json_ends_with_one_object(folder: Folder):
    told = folder.json(TRAP, "--timeout", "9", "--fuel", "1000000")
    assert {name: told[name] for name in ("exit", "reason", "message", "peak_memory")} == {
        "exit": 1,
        "reason": "trapped",
        "message": "unreachable",
        "peak_memory": 65536,
    }
    assert told["budgets"]["seconds"] == 9
    assert told["budgets"]["fuel"] == 1_000_000
    assert told["seconds"] >= 0
    assert told["calls"] == 0


def test_output_without_a_line_end_does_not_run_into_the_object(folder: Folder):
    half = guest("(call $say (i32.const 1) (i32.const 4))", data="half")
    assert folder.run(half, "--json").out.splitlines()[0] == "half"


def test_a_module_is_compiled_once_for_this_user(folder: Folder, cache_folder: Path):
    named = guest(data=str(folder.path))  # nobody else's
    kept = cache_folder / "bascule" / "modules"
    before = {*kept.glob("*.cwasm")}
    assert folder.run(named).code == 0
    (made,) = {*kept.glob("*.cwasm")} - before
    assert kept.stat().st_mode & 0o777 == 0o700
    written = made.read_bytes()
    assert folder.run(named).code == 0
    assert (made.read_bytes(), {*kept.glob("*.cwasm")} - before) == (written, {made})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"(module)", "no WASM module"),
        (b"\0asm\x0d\0\x01\0", "component"),
        (
            wat2wasm('(module (import "spear" "fly" (func)))'),
            "imports what there is not: spear.fly",
        ),
    ],
    ids=["missing", "text", "component", "import"],
)
def test_what_cannot_be_run_is_named(tmp_path: Path, content: bytes | None, said: str):
    file = tmp_path / "guest.wasm"
    if content is not None:
        file.write_bytes(content)
    done = command("run", str(file), "--json")
    assert done.code == 2
    assert said in done.err
    assert said in done.json["error"]["message"]


def test_without_a_guest_or_a_task_there_is_nothing_to_run():
    done = command("run")
    assert done.code == 2
    assert "give GUEST" in done.err


ECHO = """
(module
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $args (i32.const 32) (i32.const 1000)))
    (drop (call $environ (i32.const 64) (i32.const 1050)))
    (i32.store (i32.const 0) (i32.const 1000))
    (i32.store (i32.const 4) (i32.const 100))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))))
"""


def words_of(done: Done) -> list[str]:
    return [word for word in done.out.split("\\x00") if word]


class Task:
    """A directory of records with one task, which has an executable."""

    def __init__(
        self, folder: Folder, mcp: dict[str, Any] | None = None, **executable: Any
    ) -> None:
        records = folder.path / "mcp.d"
        (records / "tasks").mkdir(parents=True)
        file = folder.write(ECHO)
        whole = {"path": str(file), **executable}
        record = {
            "task_id": "nightly",
            "mcp": {"enabled": True, **(mcp or {})},
            "executable": whole,
        }
        (records / "tasks/nightly.json").write_text(json.dumps(record), encoding="utf-8")
        self.digest = hashlib.sha256(file.read_bytes()).hexdigest()
        self._records = records

    def run(self, *words: str) -> Done:
        return command("run", "--task", "nightly", "--registry-dir", str(self._records), *words)


def test_a_guest_has_the_arguments_and_variables_that_are_given_and_no_others(folder: Folder):
    done = folder.run(ECHO, "--arg", "one", "--arg", "two words", "--env", "LEVEL=high=er")
    assert words_of(done) == ["guest", "one", "two words", "LEVEL=high=er"]


@pytest.mark.requirement("hostcalls:run:executable")
def test_the_executable_of_a_task_is_run_with_its_arguments(folder: Folder):
    task = Task(folder, args=["o$$wn"], env={"A": "$${1}", "B": "${HOME}"})
    done = task.run("--arg", "more", "--env", "B=2")
    assert (done.code, done.err) == (0, "")
    assert words_of(done) == ["guest", "o$wn", "more", "A=${1}", "B=2"]


def test_a_reference_in_a_tasks_variables_is_not_read(folder: Folder):
    done = Task(folder, env={"TOKEN": "${HOME}"}).run()
    assert done.code == 2
    assert "--env TOKEN=VALUE" in done.err
    assert done.out == ""


def test_the_object_has_the_budgets_of_the_task(folder: Folder):
    done = Task(folder, {"max_iterations": 3}).run("--json")
    assert json.loads(done.out.splitlines()[-1])["budgets"]["max_iterations"] == 3


def test_a_reference_in_a_tasks_arguments_is_named(folder: Folder):
    done = Task(folder, args=["${HOME}"]).run()
    assert (done.code, done.out) == (2, "")
    assert "executable.args[0]: is a reference" in done.err


@pytest.mark.requirement("hostcalls:run:executable")
def test_a_module_that_is_not_the_tasks_is_not_run(folder: Folder):
    task = Task(folder, checksum_sha256="0" * 64)
    done = task.run()
    assert (done.code, done.out) == (2, "")
    assert f"its SHA-256 is {task.digest}" in done.err


def test_a_task_without_an_executable_needs_a_guest(tmp_path: Path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/plain.json").write_text('{"task_id": "plain"}', encoding="utf-8")
    done = command("run", "--task", "plain", "--registry-dir", str(tmp_path))
    assert done.code == 2
    assert "names no executable" in done.err


@pytest.mark.requirement("hostcalls:run:refused")
def test_a_session_that_is_refused_runs_nothing(folder: Folder):
    records = folder.path / "mcp.d"
    (records / "tasks").mkdir(parents=True)
    demo = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
    record = {"server_id": "notes", "transport": "stdio", "stdio": demo, "allowed_tools": ["*"]}
    (records / "notes.json").write_text(json.dumps(record), encoding="utf-8")
    (records / "tasks/narrow.json").write_text('{"task_id": "narrow"}', encoding="utf-8")
    words = ("--registry-dir", records, "--task", "narrow", "--server", "notes")
    done = folder.run(HELLO, *words)
    assert (done.code, done.out) == (10, "")
    assert "refused" in done.err


# --- in processes of their own


@pytest.mark.requirement("hostcalls:run:engine")
def test_no_other_command_imports_the_engine_and_without_it_run_says_what_to_install():
    script = (
        "import sys\n"
        "from bascule.cli.main import build_parser, run\n"
        "build_parser()\n"
        "assert 'wasmtime' not in sys.modules\n"
        "sys.modules['wasmtime'] = None\n"
        "sys.exit(run(['run', 'guest.wasm']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=END_SECONDS,
    )
    assert done.returncode == 2
    assert done.stderr == "error: guests need the engine wasmtime: pip install 'bascule[wasm]'\n"


def test_what_is_left_at_the_end_is_not_looked_through_once_more():
    script = (
        "import atexit, gc, sys\n"
        "from bascule.__main__ import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "sys.argv = ['bascule', '--version']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"True"


def started(file: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "bascule", "run", str(file), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.requirement("hostcalls:run:interrupt")
@pytest.mark.parametrize("text", [LOOP, SLEEP], ids=["loop", "host-call"])
def test_an_interrupt_ends_a_guest_wherever_it_is(folder: Folder, text: str):
    with started(folder.write(text), "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130
    assert json.loads(out)["reason"] == "interrupted"
    assert err == b"error: the guest was interrupted\n"


def test_a_guest_ends_when_nobody_reads_it_any_more(folder: Folder):
    with started(folder.write(ENDLESS)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdout.close()
        assert process.wait(END_SECONDS) == 1


@pytest.mark.requirement("hostcalls:run:output")
def test_a_pipe_gets_the_bytes_and_a_terminal_is_not_driven(folder: Folder):
    text = "(call $say (i32.const 1) (i32.const 6))"
    file = folder.write(guest(text, data="\\1b[2J\\ff\\0a"))
    with started(file) as process:
        out, _ = process.communicate(timeout=END_SECONDS)
    assert out == b"\x1b[2J\xff\n"
    terminal = Terminal([sys.executable, "-m", "bascule", "run", str(file)], NO_COLOR="1")
    assert terminal.finish() == 0
    assert "\\x1b[2J\ufffd" in terminal.shown
    assert "\x1b" not in terminal.shown
