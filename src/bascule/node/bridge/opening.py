"""What a session is opened with: as one value between the parts, as keywords for programs."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct

from bascule.model.keyword import refuse_text, refuse_unknown
from bascule.model.session import UNLIMITED, SessionLimits, SessionRequest
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.ports import InputHandler


class Opening(Struct, frozen=True, kw_only=True):
    """What a session asks for, by whose task, for which caller and within which limits.

    With ``inputs`` it has connections of its own, and their servers may ask for what that offers.
    """

    request: SessionRequest = SessionRequest()
    #: What else narrows it, each within the task: the session has what all of them leave.
    further: tuple[SessionRequest, ...] = ()
    task: str | TaskRecord | TaskPolicy | None = None
    caller: str | None = None
    #: Whose token it is, where there is one: a caller's name may be anybody's.
    token_id: str | None = None
    #: For whom it speaks, whether by its own word (``acting``), and who made the token.
    person: str | None = None
    acting: bool = False
    maker: str | None = None
    limits: SessionLimits = UNLIMITED
    inputs: InputHandler | None = None

    @property
    def whose(self) -> str | None:
        """Return whose calls these are: a token's, for one person; else a caller's."""
        owner = self.token_id or self.caller
        return owner if self.person is None else f"{owner or ''}\n{self.person}"

    @property
    def user(self) -> str:
        """Return who uses it: a person; where there is none, whoever calls."""
        named = (("person", self.person), ("token", self.token_id), ("caller", self.caller))
        return next((f"{kind}:{name}" for kind, name in named if name), "")

    @property
    def requests(self) -> tuple[SessionRequest, ...]:
        """Return every request that narrows the session."""
        return (self.request, *self.further)


class SessionOptions(TypedDict, total=False):
    """The options of a bridge's ``session``."""

    server_ids: list[str] | tuple[str, ...] | None
    task: str | TaskRecord | TaskPolicy | None
    tool_allowlist: list[str] | tuple[str, ...] | None
    tool_denylist: list[str] | tuple[str, ...]
    read_only: bool
    max_tool_output_bytes: int | None
    caller: str | None
    person: str | None
    limits: SessionLimits
    inputs: InputHandler | None


def opening_of(options: SessionOptions) -> Opening:
    """Return keywords as one value; raise TypeError for one that there is not."""
    refuse_unknown("session", options, SessionOptions.__annotations__)
    servers, allowed = options.get("server_ids"), options.get("tool_allowlist")
    denied = options.get("tool_denylist", ())
    refuse_text("session", server_ids=servers, tool_allowlist=allowed, tool_denylist=denied)
    request = SessionRequest(
        server_ids=None if servers is None else tuple(servers),
        tool_allowlist=None if allowed is None else tuple(allowed),
        tool_denylist=tuple(denied),
        read_only=options.get("read_only", False),
        max_tool_output_bytes=options.get("max_tool_output_bytes"),
    )
    return Opening(
        request=request,
        task=options.get("task"),
        caller=options.get("caller"),
        person=options.get("person"),
        limits=options.get("limits", UNLIMITED),
        inputs=options.get("inputs"),
    )
