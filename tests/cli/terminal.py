"""A command on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence

from tests.cli.served import FOUND_BY

END_SECONDS = 20


class Terminal:
    """What a command shows, and what is typed."""

    def __init__(self, command: Sequence[str], **environ: str) -> None:
        self.ours, theirs = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name not in FOUND_BY}
        env: Mapping[str, str] = {**clean, "TERM": "xterm", "COLUMNS": "100", **environ}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        self.shown = ""

    def until(self, words: str, times: int = 1) -> None:
        """Read until the words are shown, so many times."""
        while self.shown.count(words) < times:
            try:
                self.shown += os.read(self.ours, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(self.shown) from None

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.ours, f"{line}\n".encode())

    def finish(self) -> int:
        """Read to the end and return the exit code."""
        try:
            while data := os.read(self.ours, 4096):
                self.shown += data.decode(errors="replace")
        except OSError:  # how Linux says that a terminal has no more writers
            pass
        finally:
            os.close(self.ours)
        return self.process.wait(END_SECONDS)
