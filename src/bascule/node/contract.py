"""What a door needs of a bridge, whether it is in this process or connected to one elsewhere.

Below: the model and what ``bridge/`` returns. ``bascule.node.assembly.Bridge`` and the connected
bridge both have this form; so have their sessions. Above: the Python doors and the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypedDict

from bascule.model.call import Progress
from bascule.model.outcome import Failure, Outcome
from bascule.model.session import UNLIMITED, SessionLimits
from bascule.model.status import ServerStatus
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import Announcing
from bascule.node.ports import InputHandler
from bascule.policy.explain import Explanation


class SessionOptions(TypedDict, total=False):
    """The options of a bridge's ``session``, for those who pass them on."""

    server_ids: list[str] | tuple[str, ...] | None
    task: str | TaskRecord | TaskPolicy | None
    tool_allowlist: list[str] | tuple[str, ...] | None
    tool_denylist: list[str] | tuple[str, ...]
    read_only: bool
    max_tool_output_bytes: int | None
    caller: str | None
    limits: SessionLimits
    inputs: InputHandler | None


class ToolSession(Protocol):
    """One caller's way across a bridge."""

    @property
    def session_id(self) -> str:
        """Return the session's id, as the ledger has it."""
        ...

    async def tools(self) -> ToolSet:
        """List the tools."""
        ...

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        max_output_bytes: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool by the name a model uses; every failure comes back as an outcome."""
        ...

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server from what was listed."""
        ...

    async def explanation(self, name: str) -> Explanation:
        """Explain a tool or a server, asking whoever has to be asked."""
        ...

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut and is kept in this process."""
        ...

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut, wherever it is kept."""
        ...

    def decline(self, name: str, arguments: Mapping[str, Any] | None, problem: Failure) -> Outcome:
        """Write down a call that a door does not make, and return it as failed."""
        ...

    async def start(self) -> None:
        """Learn now whether the session is refused; any number of times."""
        ...

    async def close(self) -> None:
        """End the session."""
        ...


class AnyBridge(Announcing, Protocol):
    """Whatever opens sessions, and tells of changes."""

    def session(  # noqa: PLR0913 - options, all by keyword
        self,
        *,
        server_ids: list[str] | tuple[str, ...] | None = None,
        task: str | TaskRecord | TaskPolicy | None = None,
        tool_allowlist: list[str] | tuple[str, ...] | None = None,
        tool_denylist: list[str] | tuple[str, ...] = (),
        read_only: bool = False,
        max_tool_output_bytes: int | None = None,
        caller: str | None = None,
        limits: SessionLimits = UNLIMITED,
        inputs: InputHandler | None = None,
    ) -> ToolSession:
        """Open a session; raise SessionRefused when it asks for more than it may have."""
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


async def opened(bridge: AnyBridge, options: SessionOptions) -> ToolSession:
    """Open a session that is known not to be refused, or raise SessionRefused."""
    await bridge.start()
    session = bridge.session(**options)
    await session.start()
    return session
