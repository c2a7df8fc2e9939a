"""The platform record: the one that governs the whole registry.

Its denylist vetoes, its approval tightens, its ceilings bound every server's budgets.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.server import (
    ApprovalMode,
    ApprovalRule,
    Budgets,
    Milliseconds,
    ToolPattern,
)

#: The greatest number that every form of a record can carry.
MOST = 2**63 - 1


class Ceilings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Upper bounds that no server record can raise."""

    connect_timeout_ms: Milliseconds | None = None
    list_timeout_ms: Milliseconds | None = None
    tool_timeout_ms: Milliseconds | None = None
    max_concurrency: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    max_tool_output_bytes: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    max_media_bytes: Annotated[int, Meta(ge=0, le=MOST)] | None = None

    def lower(self, budgets: Budgets) -> Budgets:
        """Return the budgets, each at most its ceiling."""
        return Budgets(
            connect_timeout_ms=_least(budgets.connect_timeout_ms, self.connect_timeout_ms),
            start_timeout_ms=budgets.start_timeout_ms,
            list_timeout_ms=_least(budgets.list_timeout_ms, self.list_timeout_ms),
            tool_timeout_ms=_least(budgets.tool_timeout_ms, self.tool_timeout_ms),
            max_concurrency=_least(budgets.max_concurrency, self.max_concurrency),
            max_tool_output_bytes=_least(budgets.max_tool_output_bytes, self.max_tool_output_bytes),
            max_media_bytes=_least(budgets.max_media_bytes, self.max_media_bytes),
        )


class PlatformRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one record that governs the whole registry."""

    version: Literal[1] = 1
    tool_denylist: tuple[ToolPattern, ...] = ()
    default_approval: ApprovalMode = "never"
    rules: tuple[ApprovalRule, ...] = ()
    ceilings: Ceilings = Ceilings()


def _least(value: int, ceiling: int | None) -> int:
    return value if ceiling is None else min(value, ceiling)
