"""Tools as an agent's runtime sees them: what they take, what they give, what is told of it.

These are small types of our own, in the form that the section's specification expects of its
runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from bascule.model.call import Progress
from bascule.model.content import readable
from bascule.model.json import JsonObject
from bascule.model.outcome import Failure, Truncation
from bascule.section.session import Session

P = TypeVar("P")
R = TypeVar("R")
P_in = TypeVar("P_in", contravariant=True)
T = TypeVar("T")

Source = Literal["native", "mcp"]
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)  # no slots: older Pythons cannot make ``ToolResult[str](…)`` with them
class ToolResult(Generic[R]):
    """What a call gave. ``content`` keeps the blocks of an MCP answer, whatever ``value`` is.

    A failure says in ``error`` which kind it is, with a stable code. An answer that was cut is a
    success, and ``truncated`` says how much of it is shown.
    """

    message: str
    value: R | None
    success: bool = True
    content: tuple[JsonObject, ...] = ()
    error: Failure | None = None
    truncated: Truncation | None = None

    @property
    def text(self) -> str:
        """Return the texts of the answer, media as notes, or the message when it has none."""
        return readable(self.content) or self.message


AnyResult: TypeAlias = ToolResult[Any]


class Resources:
    """What tools may use, by type."""

    def __init__(self, known: Mapping[type, Any] | None = None) -> None:
        self._known = dict(known or {})

    def get(self, kind: type[T]) -> T | None:
        """Return the resource of a type, or None."""
        return self._known.get(kind)


@dataclass(slots=True, frozen=True)
class ToolContext:
    """What a call happens in. ``on_progress`` is told how far a server has come.

    It is called on another thread, must be short, and must not call tools; what it changes in the
    session belongs to the call.
    """

    session: Session
    resources: Resources = field(default_factory=Resources)
    on_progress: OnProgress | None = None


class ToolHandler(Protocol[P_in, R]):
    """What does a tool's work."""

    def __call__(self, params: P_in, /, *, context: ToolContext) -> ToolResult[R]: ...


@dataclass(slots=True, frozen=True)
class ToolInvoked:
    """A tool was called: the event of every success, failure and timeout."""

    tool_name: str
    params: object
    result: AnyResult
    source: Source
    mcp_server: str | None = None


@dataclass(slots=True, frozen=True)
class ApprovalNeeded:
    """A call needs somebody's approval: the event before it waits for that, or comes back.

    ``expires_at`` is until when somebody may decide, in seconds since 1970.
    """

    tool_name: str
    approval_id: str
    expires_at: float | None
    mcp_server: str | None = None


@dataclass(frozen=True)  # no slots, as above
class Tool(Generic[P, R]):
    """A tool that an agent may call.

    ``lossy`` lists what of the tool's schema ``params_type`` cannot express, which is checked all
    the same when the tool is called; lines that begin with ``output`` are of ``result_type``.
    """

    name: str
    description: str
    handler: ToolHandler[Any, R]
    params_type: type[P] | None = None
    result_type: type | None = None
    source: Source = "native"
    mcp_server: str | None = None
    native_name: str | None = None  # as the server calls it
    accepts_overrides: bool = False
    lossy: tuple[str, ...] = ()

    def run(self, params: P | JsonObject | None, *, context: ToolContext) -> ToolResult[R]:
        """Call the tool as a transaction of the session, and publish what came of it.

        A bridged tool's handler does so by itself.
        """
        if self.source == "mcp":
            return self.handler(params, context=context)
        with context.session.transaction() as transaction:
            result = self.handler(params, context=context)
            if not result.success:
                transaction.rollback()
        context.session.publish(ToolInvoked(self.name, params, result, self.source))
        return result


AnyTool: TypeAlias = Tool[Any, Any]
