"""What a guest says, as it says it: bytes as they are into a pipe, harmless text on a terminal."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Mapping
from typing import BinaryIO, TextIO

from bascule.cli.parser import EXIT_FAILED
from bascule.cli.table import Colour, paint
from bascule.doors.hostcalls.host import LogLevel, LogLine, Output
from bascule.policy.characters import render_safe

EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130
_HIGHEST_CODE = 255
_COLOURS: Mapping[LogLevel, Colour] = {"warn": "yellow", "error": "red"}


def exit_code(reason: str, code: int) -> int:
    """Return a command's exit code: the guest's own, if it had one that fits."""
    if reason == "exited":
        return code if 0 <= code <= _HIGHEST_CODE else EXIT_FAILED
    return {"timeout": EXIT_TIMEOUT, "interrupted": EXIT_INTERRUPTED}.get(reason, EXIT_FAILED)


class GuestOutput:
    """Standard output and standard error, as the listener of one guest."""

    def __init__(self) -> None:
        self._streams = {"stdout": _Stream(sys.stdout), "stderr": _Stream(sys.stderr)}
        self._on_broken: Callable[[], object] | None = None
        #: Whether nobody reads any more what the guest says.
        self.broken = False

    def hear(self, said: Output | LogLine) -> None:
        """Write something; called on the guest's thread."""
        try:
            self._write(said)
        except OSError:
            self.broken = True
            if self._on_broken is not None:
                self._on_broken()

    def end_line(self) -> None:
        """Begin a new line on standard output, unless one begins there."""
        if self._streams["stdout"].within_line:
            self._streams["stdout"].write(b"\n")

    def when_broken(self, do: Callable[[], object]) -> None:
        """Do something as soon as nobody reads any more; from the guest's thread."""
        self._on_broken = do

    def _write(self, said: Output | LogLine) -> None:
        if isinstance(said, Output):
            self._streams[said.stream].write(said.data)
            return
        level = paint(f"{said.level}:", _COLOURS.get(said.level, "dim"), sys.stderr)
        print(f"{level} {render_safe(said.text, one_line=True)}", file=sys.stderr, flush=True)


class _Stream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._raw: BinaryIO | None = None
        if hasattr(stream, "buffer") and not stream.isatty():
            self._raw = stream.buffer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.within_line = False

    def write(self, data: bytes) -> None:
        if data:
            self.within_line = not data.endswith(b"\n")
        if self._raw is not None:
            self._raw.write(data)
            self._raw.flush()
        else:
            self._stream.write(render_safe(self._decoder.decode(data)))
            self._stream.flush()
