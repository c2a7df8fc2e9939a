"""A call: what a session asks of one tool, and the limits it may not exceed.

Below: msgspec. Above: doors make calls, the bridge carries them, the ledger writes them down.
"""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct

from bascule.model.json import JsonObject


class Progress(Struct, frozen=True):
    """How far a call has come, in the server's own words."""

    progress: float
    total: float | None = None
    message: str | None = None


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


class CallRequest(Struct, frozen=True, kw_only=True):
    """One call of one tool by its native name, as the kernel sees it."""

    request_id: str
    session_id: str
    server_id: str
    tool: str
    arguments: JsonObject
    revision: int
    caller: str | None = None
    task_id: str | None = None
    limits: CallLimits = NO_LIMITS
