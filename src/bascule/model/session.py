"""What a session asks for: a selection within its task, and limits of its own."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.keyword import refuse_text
from bascule.model.server import NonEmpty, ToolPattern

Count = Annotated[int, Meta(ge=0, le=10_000)]
Iterations = Annotated[int, Meta(ge=1, le=128)]
OutputBytes = Annotated[int, Meta(ge=1, le=104_857_600)]


class SessionRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session's parameters; absent lists do not narrow, empty ones allow nothing.

    ``server_ids`` may name servers that do not exist: they are dropped with a reason.
    ``max_tool_output_bytes`` lowers what one call may give.
    """

    enabled: bool | None = None
    server_ids: tuple[NonEmpty, ...] | None = None
    tool_allowlist: tuple[ToolPattern, ...] | None = None
    tool_denylist: tuple[ToolPattern, ...] = ()
    read_only: bool = False
    max_tool_output_bytes: OutputBytes | None = None

    def __post_init__(self) -> None:
        refuse_text(
            type(self).__name__,
            server_ids=self.server_ids,
            tool_allowlist=self.tool_allowlist,
            tool_denylist=self.tool_denylist,
        )


class SessionLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Budgets of one session: the seeds' defaults for a loop; None is no limit."""

    max_iterations: Iterations | None = 8
    max_total_tool_calls: Count | None = 32
    max_tool_output_bytes: OutputBytes | None = None


UNLIMITED = SessionLimits(max_iterations=None, max_total_tool_calls=None)
