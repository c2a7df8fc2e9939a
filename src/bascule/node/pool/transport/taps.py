"""Who hears what a server says beside an answer: how far a call has come, and what is logged.

Progress names its call. A log message does not: it is told only where it surely belongs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from bascule.model.call import LOG_LEVELS, LogLevel, LogMessage, OnLog, OnProgress, Progress
from bascule.wire.strict_json import JsonValue

PROGRESS: Final = "notifications/progress"
LOG: Final = "notifications/message"
#: How many log messages one call hears of.
MOST_LOGS: Final = 1_000


class LogTap:
    """Who hears what is logged about one call: what is serious enough, and not without end."""

    __slots__ = ("_least", "_on_log", "left")

    def __init__(self, on_log: OnLog, level: LogLevel) -> None:
        self._on_log = on_log
        self._least = LOG_LEVELS.index(level)
        #: How many more are told.
        self.left = MOST_LOGS

    def hear(self, message: LogMessage) -> None:
        """Tell of a message, if it is to be told."""
        if self.left and LOG_LEVELS.index(message.level) >= self._least:
            self.left -= 1
            self._on_log(message)


class Tap(NamedTuple):
    """What a call says in its ``_meta``, and who hears of it; the token is its own."""

    token: int
    on_progress: OnProgress | None = None
    logs: tuple[LogTap, ...] = ()
    meta: bytes = b""


NO_TAP = Tap(0)


class Logs:
    """Who hears what is logged over a connection, and not with the answer to one call.

    Such a message may be about any call. Where the connection is one session's ``own``, all calls
    under way hear it that want to; where it is shared, nobody does.
    """

    __slots__ = ("listeners", "own", "told")

    def __init__(self) -> None:
        #: Set by whoever opens the connection.
        self.own = False
        self.listeners: set[LogTap] = set()
        #: The level that the server was told last.
        self.told: LogLevel | None = None

    def lacks(self, level: LogLevel) -> bool:
        """Say whether the server has to be told to log more."""
        return self.told is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(self.told)

    def tell(self, params: JsonValue) -> None:
        """Pass a message on to everybody who listens."""
        tell_log(tuple(self.listeners), params)
        self.listeners = {tap for tap in self.listeners if tap.left}


def tell_log(taps: Iterable[LogTap], params: JsonValue) -> None:
    """Pass a log message on; one that makes no sense is none."""
    try:
        message = msgspec.convert(params, LogMessage)
    except msgspec.ValidationError:
        return
    for tap in taps:
        tap.hear(message)


def tell_progress(tap: Tap | None, params: JsonValue) -> None:
    """Pass a notification of progress on to who asked for it, if it is theirs."""
    if tap is None or tap.on_progress is None or token_of(params) != tap.token:
        return
    try:
        progress = msgspec.convert(params, Progress)
    except msgspec.ValidationError:
        return
    tap.on_progress(progress)


def token_of(params: JsonValue) -> int | None:
    """Return whose progress a notification tells of, if that can be one of ours."""
    token = params.get("progressToken") if isinstance(params, dict) else None
    return token if type(token) is int else None
