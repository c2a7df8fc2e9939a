"""What a node answers about one server: how a trial went, and the tools it would offer."""

from __future__ import annotations

from msgspec import Struct


class Trial(Struct, frozen=True, kw_only=True):
    """How a trial of a server went: ``tools`` are the names the server itself uses."""

    ok: bool
    duration_ms: float
    protocol: str | None = None
    tool_count: int | None = None
    tools: tuple[str, ...] = ()
    error: str | None = None


class ToolPreview(Struct, frozen=True, kw_only=True):
    """One tool after filtering: what models call it, whether it is allowed, and who decided.

    ``claims_read_only`` is the server's own word (``readOnlyHint``): a suggestion for people who
    class its tools, which no decision is based on.
    """

    tool: str
    name: str
    allowed: bool
    layer: str
    reason: str
    claims_read_only: bool | None = None


class ToolPreviews(Struct, frozen=True):
    """Every tool of a server with the decision about it."""

    server_id: str
    tools: tuple[ToolPreview, ...]
