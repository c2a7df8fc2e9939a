"""What the bridge needs from others, as Protocols it declares itself.

``assembly.py`` joins them to the real things (the pool, an approver), tests to fakes. The ledger's
is in ``bascule.audit.ledger``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from bascule.audit.events import LeavingCall
from bascule.errors import ServerUnavailable
from bascule.model.approval import Answer, ApprovalRequest, Approved, ExactCall, OnWaiting
from bascule.model.call import NOTHING_BESIDE, Beside
from bascule.model.json import JsonObject
from bascule.model.status import ServerStatus
from bascule.model.tool import ToolDescriptor
from bascule.node.sharing import Belonging


class Listing(Struct, frozen=True):
    """A server's tools, in order of their names, and what was left out of them.

    ``version`` changes only when the tools do.
    """

    tools: tuple[ToolDescriptor, ...]
    warnings: tuple[str, ...]
    version: int
    #: What is wrong with each tool that cannot be used.
    quarantined: tuple[str, ...] = ()
    #: How the server says it is to be used: untrusted, and as it came.
    instructions: str | None = None


class StillStarting(ServerUnavailable):
    """A server is on its way, and it is not known when it will be there; that goes on.

    ``hopeful`` is one that has not failed so yet: who has nothing else to show may wait for it.
    """

    def __init__(self, message: str, *, hopeful: bool) -> None:
        super().__init__(message)
        self.hopeful = hopeful


class Route(Struct, frozen=True, gc=False):
    """Where the calls of one tool go, and whose they are: made once, used for every call."""

    server_id: str
    session_id: str
    tool: str
    #: Who waits in line, and for what was left behind.
    whose: str = ""
    #: Whether repeating a call of it does no harm.
    again: bool = False


class Outgoing(Struct, frozen=True, gc=False):
    """A call that is about to leave.

    ``timeout`` counts from the moment it leaves; ``until`` is the caller's own limit on everything,
    absolute, in ``loop.time()``. ``decide`` is awaited after every wait that there still is before
    it leaves, and raises when it may not leave any more. The ``last`` time it is sent, it is not
    sent again.
    """

    route: Route
    arguments: bytes
    timeout: float
    until: float | None = None
    decide: Callable[[], Awaitable[None]] | None = None
    last: bool = False
    beside: Beside = NOTHING_BESIDE


class Way(Protocol):
    """A connection that a call may leave over at once."""

    def send(self, call: Outgoing) -> Coroutine[Any, Any, JsonObject]:
        """Call a tool, at most once, unless repeating it does no harm.

        What has waited since the way was found finds out by itself whether it is still open.
        """
        ...


class ToolCaller(Protocol):
    """Whatever holds the connections. The pool is the real one."""

    @property
    def epoch(self) -> int:
        """Return a number that grows whenever any tool list changes."""
        ...

    @property
    def known_values(self) -> frozenset[str]:
        """Return the credentials in use, which nobody may be shown."""
        ...

    @property
    def reference_values(self) -> frozenset[str]:
        """Return every value that came from a reference, which may not be written down."""
        ...

    async def listing(self, server_id: str, session_id: str, *, patient: bool = True) -> Listing:
        """Return a server's tools, or raise ServerUnavailable with the node's reason.

        An impatient caller is told StillStarting as soon as there is nothing to wait for.
        """
        ...

    def fresh(self, server_id: str, session_id: str) -> Listing | None:
        """Return a server's tools if they are known and up to date; None if it must be asked."""
        ...

    def progress(self, server_id: str, session_id: str) -> str | None:
        """Return where a start under way stands, for people; None when there is none."""
        ...

    def way(self, route: Route) -> Way | None:
        """Return the way by which a call may leave at once, if there is one.

        Raise ServerUnavailable if there is no such server.
        """
        ...

    async def connect(self, route: Route, until: float | None) -> None:
        """Wait until there is a way, no longer than ``until`` (in ``loop.time()``)."""
        ...

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how every server's connection stands."""
        ...

    async def reconnect(self, server_id: str) -> None:
        """Tear down and reconnect one server; raise what goes wrong."""
        ...

    def introduce(self, session_id: str, whose: Belonging) -> None:
        """Say whose a session is, before anything is asked for it."""
        ...

    def offer(self, session_id: str, inputs: InputHandler) -> None:
        """Give a session connections of its own, whose servers may ask for these inputs."""
        ...

    async def release(self, session_id: str) -> None:
        """Close what belonged to one session alone, and forget whose it was."""
        ...


class InputHandler(Protocol):
    """Answers what a server asks in the middle of a call: elicitation, sampling, roots.

    ``capabilities`` is what the server is told may be asked; nothing else is ever answered.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Return MCP client capabilities, such as ``{"elicitation": {}}``."""
        ...

    async def provide(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result for one request, or raise RemoteError to refuse it."""
        ...


class Approver(Protocol):
    """Decides on calls that need approval, in this process. It may take its time."""

    async def approve(self, request: ApprovalRequest) -> bool:
        """Say yes or no."""
        ...


@runtime_checkable
class Approvals(Protocol):
    """Whoever is asked about calls that need approval (``bascule.audit.approvals``)."""

    async def ask(
        self, request: ApprovalRequest, wait: float | None, told: OnWaiting | None = None
    ) -> Answer:
        """Return the answer, or that nobody has decided after so long; ``told`` that it waits."""
        ...

    async def claim(self, approved: Approved, call: ExactCall, leaving: LeavingCall) -> bool:
        """Claim an approval for the call as it is now, directly before it leaves.

        Return whether the call's intent was written with that; if not, the ledger writes it. Raise
        ApprovalRefused when it cannot be claimed.
        """
        ...
