"""A real ``bascule up`` for tests of the commands that talk to one, and those commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.cli.main import run

START_SECONDS = 20
END_SECONDS = 15
FOUND_BY = ("BASCULE_URL", "BASCULE_TOKEN", "BASCULE_DATA_DIR", "BASCULE_CONFIG")


class Done:
    """What a command said and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """The one document that a command printed; more than one is an error here."""
        return json.loads(self.out)


def command(*words: str, given: str = "", **env: str) -> Done:
    """Run a command in this process, which has imported all it needs: most tests want no more."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8"))
        for name, value in env.items():
            patch.setenv(name, value)
        try:
            code = run(words)
        except SystemExit as usage:
            code = int(usage.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def process(*words: str, given: str = "", **env: str) -> Done:
    """Run a command in a process of its own, as people do: its start takes half a second."""
    clean = {name: value for name, value in os.environ.items() if name not in FOUND_BY}
    done = subprocess.run(
        [sys.executable, "-m", "bascule", *words],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        input=given,
        env={**clean, **env},
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Served:
    """A process that serves a data directory."""

    def __init__(self, data: Path, serving: subprocess.Popen[str]) -> None:
        self.data = data
        self.serving = serving

    @property
    def url(self) -> str:
        return (self.data / "url").read_text(encoding="utf-8").strip()

    def __call__(self, *words: str) -> Done:
        """Run a command on this process; ``--`` and what follows stay last."""
        end = words.index("--") if "--" in words else len(words)
        return command(*words[:end], "--data-dir", str(self.data), *words[end:])

    def json(self, *words: str) -> Any:
        """Run a command that works; return what it prints."""
        end = words.index("--") if "--" in words else len(words)
        done = self(*words[:end], "--json", *words[end:])
        assert done.code == 0, done.err
        return done.json

    @property
    def revision(self) -> int:
        return self.json("servers", "list")["revision"]


@contextmanager
def served(data: Path, *words: str, program: Sequence[str] = ("bascule",)) -> Generator[Served]:
    """Start ``bascule up`` and end it with the block."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BASCULE_")}
    serving = subprocess.Popen(
        [sys.executable, "-m", *program, "up", "--port", "0", "--data-dir", str(data), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env=clean,
    )
    try:
        with serving:
            try:
                _wait_until_it_serves(serving)
                yield Served(data, serving)
            finally:
                serving.terminate()
                serving.wait(END_SECONDS)
    finally:
        serving.kill()


def _wait_until_it_serves(serving: subprocess.Popen[str]) -> None:
    assert serving.stdout is not None
    said: list[str] = []
    for line in serving.stdout:
        said.append(line)
        if line.startswith("Bascule serves at"):
            return
    raise AssertionError("".join(said))
