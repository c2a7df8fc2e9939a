"""The contract of bridges and sessions, in this process or connected to a server elsewhere.

``bascule.node.blocking`` mirrors it for programs without async.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Protocol, Unpack

from bascule.model.approval import Approving
from bascule.model.call import NO_LIMITS, CallLimits, LimitOptions, Progress
from bascule.model.explanation import Explanation
from bascule.model.outcome import Failure, Outcome
from bascule.model.status import ServerStatus
from bascule.model.task import TaskBudgets
from bascule.node.bridge.opening import Opening, SessionOptions
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import Announcing


class ToolSession(Announcing, Protocol):
    """One caller's way across a bridge; it tells of the changes that concern it."""

    @property
    def session_id(self) -> str:
        """Return the session's id, as the ledger has it."""
        ...

    async def budgets(self) -> TaskBudgets:
        """Return what the task leaves to one conversation; raise if the session is refused.

        It starts no server and lists nothing.
        """
        ...

    async def tools(self) -> ToolSet:
        """List the tools."""
        ...

    def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        limits: CallLimits = NO_LIMITS,
        on_progress: Callable[[Progress], None] | None = None,
        approval: Approving = "wait",
        **own: Unpack[LimitOptions],
    ) -> Coroutine[object, None, Outcome]:
        """Call a tool by the name a model uses; every failure comes back as an outcome.

        Limits are given as a value, or as keywords, which count where both are given. Where it
        needs approval, ``approval`` says whether to wait for that (see ``Asking``).
        """
        ...

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server from what was listed."""
        ...

    def explanations(self) -> tuple[Explanation, ...]:
        """Explain every server that was considered and every tool that was listed."""
        ...

    async def explanation(self, name: str) -> Explanation:
        """Explain a tool or a server, asking its server if that is needed."""
        ...

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut and is kept in this process."""
        ...

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut, wherever it is kept."""
        ...

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how the session's servers stand, as far as this process knows."""
        ...

    async def reconnect(self, server_id: str) -> None:
        """Get one of the session's servers back; raise ServerUnavailable if that fails."""
        ...

    def decline(
        self, name: str, arguments: Mapping[str, object] | None, problem: Failure
    ) -> Outcome:
        """Write down a call that a door does not make, and return it as failed."""
        ...

    async def note_own(
        self, name: str, arguments: Mapping[str, object] | None, outcome: Outcome, seconds: float
    ) -> Outcome:
        """Write down and count a call of a tool that is the caller's own, and ran here.

        Returns the outcome under the id that it is written down with; where it could not be
        written down, with a warning.
        """
        ...

    async def start(self) -> None:
        """Learn now whether the session is refused; any number of times."""
        ...

    async def close(self) -> None:
        """End the session."""
        ...


class AnyBridge(Announcing, Protocol):
    """Whatever opens sessions, and tells of changes."""

    def session(self, **options: Unpack[SessionOptions]) -> ToolSession:
        """Open a session; raise SessionRefused when it asks for more than it may have."""
        ...

    def open_session(self, opening: Opening) -> ToolSession:
        """Open a session from a value, as ``session`` does from keywords."""
        ...

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how the connections stand that this process holds."""
        ...

    async def reconnect(self, server_id: str) -> None:
        """Tear down and connect once more, if this process holds the connection; raise."""
        ...

    async def start(self) -> None:
        """Begin to serve; any number of times."""
        ...

    async def close(self) -> None:
        """End every connection."""
        ...


async def opened(bridge: AnyBridge, opening: Opening) -> ToolSession:
    """Open a session that is known not to be refused, or raise SessionRefused."""
    await bridge.start()
    session = bridge.open_session(opening)
    await session.start()
    return session
