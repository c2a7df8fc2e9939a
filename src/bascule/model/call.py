"""A call: what a session asks of one tool, and the limits it may not exceed.

Below: msgspec. Above: doors make calls, the bridge carries them, the ledger writes them down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class CallLimits(Struct, frozen=True, kw_only=True):
    """A caller's own limits; they may only lower what the record gives."""

    timeout_ms: int | None = None
    max_output_bytes: int | None = None


class CallRequest(Struct, frozen=True, kw_only=True):
    """One call of one tool by its native name, as the kernel sees it."""

    request_id: str
    session_id: str
    server_id: str
    tool: str
    arguments: Mapping[str, Any]
    revision: int
    caller: str | None = None
    task_id: str | None = None
    limits: CallLimits = CallLimits()


def effective_limit(record: int, *asked: int | None) -> int:
    """Return the least of the record's limit and what was asked for."""
    return min([record, *(limit for limit in asked if limit is not None)])
