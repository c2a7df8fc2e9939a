"""The limits of a call, and what goes on beside it: progress, logs, and the trace it is part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from msgspec import Struct

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
#: From the least to the most serious.
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


class Progress(Struct, frozen=True):
    """How far a call has come, in the server's own words."""

    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(Struct, frozen=True):
    """What a server logs about a call, in its own words."""

    level: LogLevel
    data: Any
    logger: str | None = None


OnProgress: TypeAlias = Callable[[Progress], None]
OnLog: TypeAlias = Callable[[LogMessage], None]


class Beside(Struct, frozen=True, kw_only=True):
    """What goes on beside a call: who hears of it, and which trace it is part of.

    Without ``log_level`` nobody hears of logs; with it, of those that are as serious or more.
    ``trace`` has ``traceparent`` and ``tracestate``, and nothing else. Who checks results against
    their tool's output schema says ``keeps_schema``: one that has to be cut is still valid then, or
    the call fails as ``mcp_output_too_large`` with what there is room for.
    """

    on_progress: OnProgress | None = None
    on_log: OnLog | None = None
    log_level: LogLevel | None = None
    trace: Mapping[str, str] = {}
    keeps_schema: bool = False


NOTHING_BESIDE = Beside()
#: Of a caller who hears of nothing, and checks results.
SCHEMA_KEPT = Beside(keeps_schema=True)


class CallLimits(Struct, frozen=True, kw_only=True):
    """A caller's own limits; they may only lower what the record gives.

    ``timeout`` bounds the call as a whole, connecting included. ``idle_timeout`` ends a call that
    neither answers nor reports progress for so long; progress extends it, never the timeout.
    """

    timeout: float | None = None
    idle_timeout: float | None = None
    max_output_bytes: int | None = None


NO_LIMITS = CallLimits()


class LimitOptions(TypedDict, total=False):
    """The fields of ``CallLimits``, as keywords of ``Session.call``."""

    timeout: float | None
    idle_timeout: float | None
    max_output_bytes: int | None
