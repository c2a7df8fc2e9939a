"""The log of a process: lines on standard error, for people or for machines.

Every text on a line passes the masking, whoever wrote it. Lines are written by a thread of their
own and may be lost when nobody reads them: a full pipe must not stop a server.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain

import msgspec

from bascule.app.settings_tables import Level, LogForm, LogSettings
from bascule.model.json import is_array, is_object
from bascule.policy.characters import render_safe
from bascule.policy.leaks import Scanner

_MAX_WAITING = 10_000
_END_SECONDS = 2.0
_TOKEN = re.compile(r"\bbsc_[A-Za-z0-9_-]{8,}")  # our own, which no other rule knows
_LEVELS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
#: What stands in the sentence of a line already, or is too much for one.
_NOT_IN_TEXT = frozenset(
    {
        *("event", "warnings", "decisions", "arguments", "arguments_digest", "servers", "rule"),
        *("layer", "slow", "last_error", "old_state", "state", "method", "path", "status", "code"),
    }
)


class _Masking:
    """Masks what looks like a credential, and values that are known to be one."""

    def __init__(self) -> None:
        self._values: tuple[frozenset[str], ...] = ()
        self._scanner = Scanner()
        self.sources: tuple[Callable[[], frozenset[str]], ...] = ()

    def __call__(self, text: str) -> str:
        values = tuple(source() for source in self.sources)
        if values != self._values:  # a look at each, as long as they stay the same sets
            self._scanner = Scanner(chain.from_iterable(values))
            self._values = values
        return _TOKEN.sub("bsc_[masked]", self._scanner.mask(text)[0])


class ProcessLog(logging.Handler):
    """Writes records as lines. Only the thread that writes does any masking."""

    def __init__(self, form: LogForm, write: Callable[[bytes], object]) -> None:
        super().__init__()
        self.masking = _Masking()
        self._line = self._json_line if form == "json" else self._text_line
        self._write = write
        self._waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(_MAX_WAITING)
        self._lost = 0
        self._writer = threading.Thread(target=self._work, name="bascule-log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record to the thread that writes."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Write what waits, unless nobody reads it."""
        try:
            self._waiting.put(None, timeout=_END_SECONDS)
            self._writer.join(_END_SECONDS)
        except queue.Full:
            return
        finally:
            super().close()

    def _work(self) -> None:
        while (record := self._waiting.get()) is not None:
            lost, self._lost = self._lost, 0
            if lost:
                self._put(logging.makeLogRecord(_lost(lost)))
            self._put(record)

    def _put(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # there is no other place to say it
            self._write(self._line(record).encode("utf-8", "backslashreplace") + b"\n")

    def _text_line(self, record: logging.LogRecord) -> str:
        fields = self._fields(record)
        said = "".join(
            f" {key}={_word(value)}" for key, value in fields.items() if _short(key, value)
        )
        words = render_safe(self.masking(record.getMessage()), one_line=True)
        line = f"{_moment(record.created)} {record.levelname} {record.name}: {words}{said}"
        trace = self._trace(record)
        return f"{line}\n{render_safe(trace)}" if trace else line

    def _json_line(self, record: logging.LogRecord) -> str:
        plain = {
            "timestamp": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.masking(record.getMessage()),
            **self._fields(record),
        }
        trace = self._trace(record)
        whole = {**plain, "exception": trace} if trace else plain
        return msgspec.json.encode(whole, enc_hook=str).decode()

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        fields: dict[str, object] = getattr(record, "fields", {})
        return {key: self._hidden(value) for key, value in fields.items()}

    def _trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        return self.masking(logging.Formatter().formatException(record.exc_info))

    def _hidden(self, value: object) -> object:
        """Return a value with every text in it masked."""
        if isinstance(value, str):
            return self.masking(value)
        if is_object(value):
            return {self.masking(str(key)): self._hidden(one) for key, one in value.items()}
        return [self._hidden(one) for one in value] if is_array(value) else value


@contextmanager
def process_log(
    settings: LogSettings, write: Callable[[bytes], object] | None = None
) -> Generator[ProcessLog]:
    """Let what happens be said on standard error, while the process serves.

    Others' loggers are heard from level ``warning`` on.
    """
    log = ProcessLog(settings.format, write or _to_stderr())
    level, root, own = _LEVELS[settings.level], logging.getLogger(), logging.getLogger("bascule")
    before = root.level, own.level
    root.setLevel(max(level, logging.WARNING))
    own.setLevel(level)
    root.addHandler(log)
    try:
        yield log
    finally:
        root.removeHandler(log)
        root.setLevel(before[0])
        own.setLevel(before[1])
        log.close()


def hide(*values: Callable[[], frozenset[str]]) -> None:
    """Say where the values are that no line of the log may show; another thread asks there."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ProcessLog):
            handler.masking.sources += values


def _to_stderr() -> Callable[[bytes], object]:
    """Return a way past the buffers: at the end of the process nobody waits for those."""
    try:
        number = sys.stderr.fileno()
    except (OSError, ValueError):
        return lambda line: sys.stderr.write(line.decode())

    def write(line: bytes) -> None:
        left = memoryview(line)
        while left:
            left = left[os.write(number, left) :]

    return write


def _lost(lines: int) -> dict[str, object]:
    words = f"{lines} lines of the log were lost: whatever reads it is too slow"
    return {"msg": words, "name": "bascule.log", "levelno": logging.WARNING, "levelname": "WARNING"}


def _moment(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _short(key: str, value: object) -> bool:
    return key not in _NOT_IN_TEXT and not is_object(value)


def _word(value: object) -> str:
    """Return a field's value as one word of a line."""
    if is_array(value):
        return ",".join(_word(one) for one in value)
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if not isinstance(value, str):
        return str(value).lower()
    shown = render_safe(value, one_line=True)
    return (
        msgspec.json.encode(shown).decode() if not shown or re.search(r'[\s"=]', shown) else shown
    )
