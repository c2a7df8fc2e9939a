"""``bascule tour``: a short tour with the bundled demo server, each step a real command.

``main.run`` runs the very words that are printed, over a copy of the demo's records.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from bascule.cli.command import print_json
from bascule.cli.command_line import typed
from bascule.cli.main import run
from bascule.cli.parser import Parser
from bascule.cli.table import paint
from bascule.demo.copies import write_records
from bascule.model.json import JsonObject
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.assembly import Bridge

_INTERRUPTED = 130
_READER = TaskRecord(
    task_id="reader",
    mcp=TaskPolicy(enabled=True, default_server_ids=("notes",), read_only=True),
)
_EPILOG = """\
Without --keep the records are removed after the tour. With it they stay, and you can run every
command that the tour prints again.
"""


_ASKED = "Where a process serves, somebody else is asked. In three terminals:"
_ASKING = (
    "up",
    """chat 'call notes.delete_note with {"name": "shopping"}'""",
    "approvals watch",
)
_LAST = "An output over its cap is cut; its session keeps the rest behind a handle."


class Step(Struct, frozen=True):
    """One command of the tour, why it is there, and the exit code it should end with."""

    why: str
    words: tuple[str, ...]
    exit_code: int = 0


_STEPS = (
    Step("Is every server well? The doctor starts each one and times it.", ("doctor",)),
    Step("Which tools are there, what do they do, who must agree?", ("tools", "list")),
    Step(
        "Call one. Its arguments are checked before they leave.",
        ("tools", "call", "mcp__notes__search_notes", "--arg", "query=bridge"),
    ),
    Step(
        "A task that only reads may not write: the call is refused, and nothing was sent.",
        ("tools", "call", "notes/write_note", '{"name": "x", "text": "y"}', "--task", "{reader}"),
        10,
    ),
    Step(
        "Why? Every decision names its layer and its rule.",
        ("tools", "explain", "notes/write_note", "--task", "{reader}"),
        10,
    ),
    Step(
        "Deleting needs a person's approval. Nobody is asked here, so it does not happen.",
        ("tools", "call", "notes/delete_note", "--arg", "name=shopping", "--no-input"),
        10,
    ),
    Step(
        "With approval it does.",
        ("tools", "call", "notes/delete_note", "--arg", "name=shopping", "--yes"),
    ),
)


def fill(parser: Parser) -> None:
    """Add the options of ``tour``."""
    parser.epilog = _EPILOG
    parser.add_argument("--keep", metavar="DIR", help="keep the demo's records in this folder")
    parser.add_argument("--json", action="store_true", help="print the steps as one document")
    parser.set_defaults(run=tour, usage=parser.error)


def tour(arguments: argparse.Namespace) -> int:
    """Walk through the demo; exit 0 when every step went as it should."""
    walk = _told if arguments.json else _walk
    if arguments.keep is None:
        with tempfile.TemporaryDirectory(prefix="bascule-tour-") as folder:
            return walk(Path(folder))
    folder = Path(arguments.keep)
    if folder.exists() and any(folder.iterdir()):
        arguments.usage(f"--keep {folder}: is not empty")
    return walk(folder)


def _walk(folder: Path) -> int:
    write_records(folder, _READER)
    # One stream, so that complaints stand where they belong.
    with contextlib.redirect_stderr(sys.stdout):
        surprises = [step for step in _STEPS if not _take(step, folder)]
        _show_whole_output(str(folder))
        _announce(_ASKED, [f"$ {typed(words)}" for words in _ASKING])
    for step in surprises:
        print(f"this step went wrong: {step.why}", file=sys.stderr)
    return 1 if surprises else 0


def _words(step: Step, folder: Path) -> list[str]:
    reader = str(folder / "tasks" / "reader.toml")
    words = [reader if word == "{reader}" else word for word in step.words]
    return [*words, "--registry-dir", str(folder)]


def _take(step: Step, folder: Path) -> bool:
    """Print the command and run it; say whether it ended as it should."""
    words = _words(step, folder)
    _announce(step.why, [f"$ {typed(shlex.join(words))}"])
    code = _run(words)
    if code:
        print(paint(f"(exit code {code})", "dim"))
    sys.stdout.flush()
    return code == step.exit_code


def _run(words: Sequence[str]) -> int:
    code = run(words)
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return code


def _announce(why: str, lines: Sequence[str]) -> None:
    print()
    print(paint(f"# {why}", "dim"))
    for line in lines:
        print(paint(line, "bold"))
    sys.stdout.flush()


def _show_whole_output(registry_dir: str) -> None:
    _announce(f"{_LAST} In Python:", _python().splitlines())
    read_the_rest(registry_dir)


def _python() -> str:
    return textwrap.dedent(inspect.getsource(read_the_rest))


# --- for programs


def _told(folder: Path) -> int:
    """Print the steps and what their commands answer with --json, as one document."""
    write_records(folder, _READER)
    steps = [_answered(step, folder) for step in _STEPS]
    last = io.StringIO()
    with contextlib.redirect_stdout(last):
        read_the_rest(str(folder))
    closing = {"why": _LAST, "python": _python(), "output": last.getvalue()}
    ok = all(step["ok"] for step in steps)
    print_json({"ok": ok, "steps": [*steps, closing]})
    return 0 if ok else 1


def _answered(step: Step, folder: Path) -> JsonObject:
    """Run a step's command; return what it is, how it ended and what it printed."""
    words = [*_words(step, folder), "--json"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        code = _run(words)
    return {
        "why": step.why,
        "command": ["bascule", *words],
        "exit_code": code,
        "ok": code == step.exit_code,
        "output": json.loads(output.getvalue()),
    }


def read_the_rest(registry_dir: str) -> None:
    """Cut an output on purpose, then read all of it."""
    with Bridge.blocking(registry_dir) as bridge:
        session = bridge.session(server_ids=["notes"])
        name, arguments = "mcp__notes__read_note", {"name": "reading-list"}
        cut = session.call(name, arguments, max_output_bytes=90)
        print("text:     ", cut.text)
        print("truncated:", cut.truncated)
        if cut.truncated is not None and cut.truncated.handle is not None:
            print("whole:    ", session.read_output(cut.truncated.handle))
