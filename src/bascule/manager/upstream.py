"""Where an agent's servers are reached: a bridge of the agent's own, or one that was given.

On its own bridge an agent has its own connections, and this keeps them up. On a given bridge,
in this process or connected to a registry, names refer to the servers there: the registry rules,
and nothing here starts, changes or ends them. Either way every call crosses a bridge.

Below: ``bascule.node``. Above: ``link.py`` uses one through the ``Upstream`` Protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from bascule.errors import BasculeError, ServerUnavailable
from bascule.manager.config import McpServerConfig
from bascule.manager.events import State
from bascule.manager.record import record_of
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.assembly import Bridge, BridgeOptions
from bascule.node.bridge.toolset import ToolSet
from bascule.node.contract import AnyBridge, ToolSession
from bascule.node.settings import NodeSettings

#: The pool tries once, at once, when a connection is lost; all later attempts are the link's, so
#: that there is one schedule. A call in between may try again every few seconds. Connections of
#: an agent are not closed for idleness: it works as long as it lives.
AGENT_SETTINGS = NodeSettings(
    idle_seconds=float("inf"),
    reconnects=1,
    backoff_seconds=2.0,
    backoff_limit_seconds=4.0,
    park_after=1_000_000,
    max_processes=1024,
)
_RESTING = frozenset({"disconnected", "down", "parked"})


class Sight(Struct, frozen=True):
    """What a bridge says of one connection."""

    state: State
    last_error: str | None


class Upstream(Protocol):
    """What a link needs: sessions, connecting, and to hear that a connection is lost."""

    def session(self, config: McpServerConfig) -> ToolSession:
        """Open a session on one server; raise SessionRefused."""
        ...

    async def connect(self, name: str, session: ToolSession, *, anew: bool) -> None:
        """Connect a server, tearing down what is there if ``anew``; raise what goes wrong."""
        ...

    def sight(self, name: str) -> Sight | None:
        """Return how the connection stands, if this bridge tells."""
        ...

    def lost(self, name: str) -> bool:
        """Say whether a server that was connected serves no more."""
        ...

    async def apply(self, configs: Iterable[McpServerConfig]) -> None:
        """Follow a new configuration."""
        ...

    async def close(self) -> None:
        """End what is one's own."""
        ...


class OwnUpstream:
    """A bridge for one agent alone."""

    def __init__(
        self, agent_id: str, configs: Iterable[McpServerConfig], options: BridgeOptions
    ) -> None:
        self._agent_id = agent_id
        self._revision = 0
        given: BridgeOptions = {"settings": AGENT_SETTINGS}
        given.update(options)
        self._bridge = Bridge.open(self._snapshot(configs), **given)

    def session(self, config: McpServerConfig) -> ToolSession:
        """Open a session on one server."""
        return open_session(self._bridge, config, self._agent_id, None)

    async def connect(self, name: str, session: ToolSession, *, anew: bool) -> None:
        """Connect and list; raise ServerUnavailable in words that may be shown."""
        try:
            await self._bridge.start()
            sight = self.sight(name)
            if anew or (sight is not None and sight.state in _RESTING):
                await self._bridge.reconnect(name)
            await self._bridge.inspect(name)
        except BasculeError as error:
            reason = error.reason if isinstance(error, ServerUnavailable) else "unavailable"
            words = self._bridge.presentable_text(str(error))
            raise ServerUnavailable(words, reason=reason) from None

    def sight(self, name: str) -> Sight | None:
        """Return how the pool's connection stands."""
        return seen(self._bridge, name)

    def lost(self, name: str) -> bool:
        """Say whether the pool has given the connection up."""
        sight = self.sight(name)
        return sight is None or sight.state in _RESTING

    async def apply(self, configs: Iterable[McpServerConfig]) -> None:
        """Follow a new configuration: the pool drops what is gone and what moved."""
        await self._bridge.apply(self._snapshot(configs))

    async def close(self) -> None:
        """End every connection and process."""
        await self._bridge.close()

    def _snapshot(self, configs: Iterable[McpServerConfig]) -> Snapshot:
        self._revision += 1
        records = {config.name: record_of(config)[0] for config in configs}
        return Snapshot(store_id=self._agent_id, revision=self._revision, servers=records)


class GivenUpstream:
    """A bridge that belongs to somebody else."""

    def __init__(
        self, agent_id: str, bridge: AnyBridge, task: str | TaskRecord | TaskPolicy | None
    ) -> None:
        self._agent_id = agent_id
        self._bridge = bridge
        self._task = task

    def session(self, config: McpServerConfig) -> ToolSession:
        """Open a session on one server; raise SessionRefused when the task has not got it."""
        return open_session(self._bridge, config, self._agent_id, self._task)

    async def connect(self, name: str, session: ToolSession, *, anew: bool) -> None:
        """List the tools, which connects; raise ServerUnavailable with the bridge's reason."""
        await self._bridge.start()
        if anew and isinstance(self._bridge, Reporting):
            await self._bridge.reconnect(name)
        problem = trouble(name, session, await session.tools())
        if problem is not None:
            raise ServerUnavailable(problem)

    def sight(self, name: str) -> Sight | None:
        """Return how the connection stands there, where the bridge tells it."""
        return seen(self._bridge, name)

    def lost(self, name: str) -> bool:
        """Say whether it failed there; one that rests comes back when it is used."""
        sight = self.sight(name)
        return sight is not None and sight.state in {"down", "parked"}

    async def apply(self, configs: Iterable[McpServerConfig]) -> None:
        """Change nothing there."""

    async def close(self) -> None:
        """Leave the bridge to its owner."""


def trouble(name: str, session: ToolSession, tools: ToolSet) -> str | None:
    """Say what keeps a server from having tools, after they were listed; None if nothing does.

    A bridge elsewhere that cannot be reached still explains what it said before: it is known by
    its warning. A server all of whose tools are unusable is connected, and has none.
    """
    decision = session.explain(name).decision
    if not decision.allowed:
        return decision.rule or decision.reason
    unusable = f"{name}: quarantined"
    warnings = [text for text in tools.warnings if not text.startswith(unusable)]
    return warnings[0] if warnings and not tools else None


@runtime_checkable
class Reporting(Protocol):
    """A bridge that also tells of its connections, as one in this process does."""

    def statuses(self) -> Sequence[Any]:
        """Return a status of each server: ``server_id``, ``state``, ``last_error``."""
        ...

    async def reconnect(self, server_id: str) -> None:
        """Tear down and connect once more."""
        ...

    def presentable_text(self, text: str) -> str:
        """Return words that came from a server, fit to be shown."""
        ...


def seen(bridge: AnyBridge, name: str) -> Sight | None:
    """Return what a bridge says of one server, in words that may be shown."""
    if not isinstance(bridge, Reporting):
        return None
    for status in bridge.statuses():
        if status.server_id == name:
            error = status.last_error
            return Sight(status.state, None if error is None else bridge.presentable_text(error))
    return None


def open_session(
    bridge: AnyBridge,
    config: McpServerConfig,
    agent_id: str,
    task: str | TaskRecord | TaskPolicy | None,
) -> ToolSession:
    """Open an agent's session on one server, narrowed by the agent's own filter."""
    return bridge.session(
        server_ids=[config.name],
        task=task,
        tool_allowlist=config.tools.include,
        tool_denylist=config.tools.exclude,
        caller=agent_id,
    )
