"""The limits of a call, and the progress that a server reports of it."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct


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
