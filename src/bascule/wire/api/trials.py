"""What a node answers about one server: how a trial went, and the tools it would offer."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

#: Read what the record refers to, under the node's rules; fetch what a confined launcher starts;
#: start the program, or connect to the address; agree on the protocol; list the tools.
Step: TypeAlias = Literal["resolve", "fetch", "start", "connect", "handshake", "list"]


class TrialStep(Struct, frozen=True, kw_only=True):
    """One step of a trial, and how it ended; ``message`` says why it failed."""

    step: Step
    ok: bool
    duration_ms: float
    message: str = ""


class Missed(Struct, frozen=True, kw_only=True):
    """What a local server did not get inside its sandbox, as far as its own words tell.

    ``value`` in that ``field`` of the sandbox would give it; no field gives what no server sees.
    """

    field: Literal["read", "write", "hosts", "network", ""]
    value: str
    wanted: str


class Trial(Struct, frozen=True, kw_only=True):
    """How a trial of a server went: ``tools`` are the names the server itself uses.

    The last of ``steps`` is the one that failed, if one did; ``stderr`` has the last lines that a
    program wrote there. ``missed`` is what it seems to need, where its sandbox is why it failed.
    """

    ok: bool
    duration_ms: float
    protocol: str | None = None
    tool_count: int | None = None
    tools: tuple[str, ...] = ()
    error: str | None = None
    steps: tuple[TrialStep, ...] = ()
    stderr: tuple[str, ...] = ()
    missed: tuple[Missed, ...] = ()


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
