"""The MCP servers of one agent: connected at its start, kept, changed and ended with it.

    manager = McpManager([McpServerConfig(name="time", transport="stdio", command="…")])
    await manager.connect_all()
    for tool in await manager.get_tools():
        tool.name, tool.definition(), await tool.call({"timezone": "UTC"})
    await manager.disconnect_all()

On its own bridge an agent has its own connections, which the bridge keeps up. On a given bridge,
in this process or connected to a registry, names refer to the servers there: the registry rules,
and nothing here starts, changes or ends them. ``link.py`` holds one server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Unpack

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import BasculeError
from bascule.lifetime import Lifetime
from bascule.manager.activity import Activity
from bascule.manager.adapter import McpToolAdapter, adapters
from bascule.manager.config import McpServerConfig
from bascule.manager.events import (
    OnEvent,
    ToolCompleted,
    ToolNamesCollided,
    ToolStarted,
    logger,
    telling,
)
from bascule.manager.link import Agent, Link
from bascule.manager.record import checked_config, record_of, unique
from bascule.manager.retry import AGENT_SETTINGS, RetryRules
from bascule.manager.status import ServerStatus, status_block
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.assembly import Bridge, BridgeOptions
from bascule.node.contract import AnyBridge
from bascule.node.patience import Patience

#: An agent waits no longer for its servers; slower ones are "connecting", and come when they do.
STARTUP_SECONDS = 5.0


class UnknownServer(BasculeError):
    """The agent has no server of this name."""

    code = "not_found"


class ServerDisabled(BasculeError):
    """The server is configured and disabled: enable it first."""

    code = "wrong_state"


class Reconciled(Struct, frozen=True):
    """What a new configuration changed, by name; ``changed`` ones were connected anew."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


class McpManager(Lifetime):
    """One agent's servers. Nothing here raises because a server is broken, but ``reconnect``.

    ``bridge`` is any bridge, in this process or connected to a registry; ``configs`` may then be
    names of servers there. Without one the agent has a bridge of its own, opened by
    ``connect_all`` with the options of ``Bridge.open`` (``rules``, ``environ``, ``secrets``, …).
    A call that needs somebody's approval comes back with the question's id, or waits for the
    answer for ``approval_seconds`` (``math.inf``: as long as it can be given).
    """

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        configs: Iterable[McpServerConfig | str] = (),
        *,
        agent_id: str = "agent",
        bridge: AnyBridge | None = None,
        task: str | TaskRecord | TaskPolicy | None = None,
        on_event: OnEvent | None = None,
        retry: RetryRules | None = None,
        startup_seconds: float = STARTUP_SECONDS,
        approval_seconds: float = 0.0,
        **options: Unpack[BridgeOptions],
    ) -> None:
        unused = sorted(set(options) - {"clock"})
        if bridge is not None and unused:
            raise ValueError(f"a given bridge has options of its own: {', '.join(unused)}")
        if bridge is None and task is not None:
            raise ValueError("a task is for a given bridge; an agent's own has none")
        self.agent_id = agent_id
        self._given = bridge
        self._bridge: AnyBridge | None = None
        self._options = options
        self._activity = Activity()
        self._agent = Agent(
            id=agent_id,
            clock=options.get("clock", SYSTEM_CLOCK),
            retry=retry or RetryRules(),
            tell=self._activity.heard(telling(on_event)),
            task=task,
            keeps=bridge is None,
            patience=Patience(approval_seconds),
        )
        self._startup_seconds = startup_seconds
        self._turn = asyncio.Lock()
        self._own: Bridge | None = None
        self._revision = 0
        self._collisions: frozenset[str] = frozenset()
        self._links = {name: Link(self._agent, one) for name, one in self._checked(configs).items()}

    @property
    def configs(self) -> tuple[McpServerConfig, ...]:
        """Return the configuration in force."""
        return tuple(link.config for link in self._links.values())

    async def start(self) -> None:
        """Connect every enabled server, as ``connect_all``."""
        await self.connect_all()

    async def close(self) -> None:
        """End everything, as ``disconnect_all``."""
        await self.disconnect_all()

    async def connect_all(self) -> list[ServerStatus]:
        """Connect every enabled server, all at once; return when each was tried, or in time.

        A server that fails, or takes longer than ``startup_seconds``, goes on being tried.
        """
        async with self._turn:
            self._bridge = bridge = self._bridge or self._given or self._opened()
            for link in self._links.values():
                await link.start(bridge)
        await self._first_attempts(self._links.values())
        return self.statuses()

    async def disconnect_all(self) -> None:
        """End every connection, process and retry; ``connect_all`` may be called again."""
        async with self._turn:
            await asyncio.gather(*(link.stop() for link in self._links.values()))
            own, self._own, self._bridge = self._own, None, None
            if own is not None:
                await own.close()

    async def get_tools(self) -> list[McpToolAdapter]:
        """Return the tools of the connected servers: servers as configured, tools by name.

        The list is as it is now. Whoever took an earlier one keeps it.
        """
        links = list(self._links.values())
        found = await asyncio.gather(*(link.tools() for link in links))
        collisions: dict[str, tuple[str, ...]] = {}
        made = adapters(zip(links, found, strict=True), collisions.__setitem__)
        for name in collisions.keys() - self._collisions:
            self._tell_collision(name, collisions[name])
        self._collisions = frozenset(collisions)
        return made

    async def reconnect(self, name: str) -> ServerStatus:
        """Tear down one server and connect it once, now.

        Raise UnknownServer, ServerDisabled, or ServerUnavailable with the reason; after a
        failure it goes on being tried in the background.
        """
        link = self._links.get(name)
        if link is None:
            raise UnknownServer(f"agent {self.agent_id!r} has no server {name!r}")
        if not link.config.enabled:
            raise ServerDisabled(f"server {name!r} of agent {self.agent_id!r} is disabled")
        await link.reconnect()
        return link.status()

    async def reconcile(
        self,
        configs: Iterable[McpServerConfig | str],
        new: Iterable[McpServerConfig | str] | None = None,
    ) -> Reconciled:
        """Follow a new configuration: connect what is new, drop what is gone, leave the rest.

        ``reconcile(old, new)`` says the same: what is in force is known here, and compared.

        What was changed is connected anew where its connection depends on it; what is unchanged
        and not connected is tried at once. Raise InvalidRecord, and change nothing, if it is
        not usable.
        """
        wanted = self._checked(configs if new is None else new)
        async with self._turn:
            plan = _compare({name: one.config for name, one in self._links.items()}, wanted)
            await self._follow(plan, wanted)
            begun = () if self._bridge is None else (*plan.added, *plan.changed)
        await self._first_attempts(self._links[name] for name in begun if name in self._links)
        return plan

    def statuses(self) -> list[ServerStatus]:
        """Return how every configured server stands, in the order of the configuration."""
        return [link.status() for link in self._links.values()]

    @property
    def running_calls(self) -> tuple[ToolStarted, ...]:
        """Return the tool calls that have not ended, oldest first."""
        return tuple(self._activity.running.values())

    @property
    def last_calls(self) -> tuple[ToolCompleted, ...]:
        """Return the tool calls that ended last, newest first."""
        return tuple(self._activity.last)

    def status_block(self) -> str:
        """Return lines for a prompt: connected servers, calls that run, and the last ones."""
        return status_block(
            self.statuses(),
            running=self.running_calls,
            last=self.last_calls,
            now=self._agent.clock.now(),
        )

    def renew_secret(self, name: str) -> None:
        """Have a secret's new value used, as ``Bridge.renew_secret``; a given bridge is asked."""
        if self._own is not None:
            self._own.renew_secret(name)

    @property
    def reference_values(self) -> frozenset[str]:
        """Return what references gave to the agent's own bridge, to be masked."""
        return frozenset() if self._own is None else self._own.caller.reference_values

    def _checked(self, configs: Iterable[McpServerConfig | str]) -> dict[str, McpServerConfig]:
        found = unique(configs)
        if self._given is not None:
            return found
        return {name: checked_config(config) for name, config in found.items()}

    def _opened(self) -> Bridge:
        """Open a bridge of the agent's own, which keeps its connections by the agent's rule."""
        options = self._options.copy()
        options["settings"] = self._agent.retry.applied(options.get("settings") or AGENT_SETTINGS)
        self._own = Bridge.open(self._snapshot(self.configs), **options)
        return self._own

    def _snapshot(self, configs: Iterable[McpServerConfig]) -> Snapshot:
        self._revision += 1
        records = {config.name: record_of(config)[0] for config in configs}
        return Snapshot(store_id=self.agent_id, revision=self._revision, servers=records)

    async def _follow(self, plan: Reconciled, wanted: dict[str, McpServerConfig]) -> None:
        """End what must end before the bridge changes, and begin the rest after it."""
        old, bridge = self._links, self._bridge
        await asyncio.gather(*(old[name].remove() for name in plan.removed))
        await asyncio.gather(*(old[name].pause() for name in plan.changed))
        self._links = {
            name: old.get(name) or Link(self._agent, one) for name, one in wanted.items()
        }
        if self._own is not None:
            await self._own.apply(self._snapshot(wanted.values()))
        for name in plan.changed:
            await self._links[name].change(wanted[name], bridge)
        if bridge is None:
            return
        for name in plan.added:
            await self._links[name].start(bridge)
        for name in plan.unchanged:
            await self._links[name].hurry()

    async def _first_attempts(self, links: Iterable[Link]) -> None:
        """Wait for attempts under way, for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._startup_seconds):
                await asyncio.gather(*(link.tried.wait() for link in links))

    def _tell_collision(self, name: str, tools: tuple[str, ...]) -> None:
        logger.warning("tools of agent %r share the name %r: %s", self.agent_id, name, tools)
        now = self._agent.clock.now()
        self._agent.tell(ToolNamesCollided(at=now, agent_id=self.agent_id, name=name, tools=tools))


def _compare(old: dict[str, McpServerConfig], new: dict[str, McpServerConfig]) -> Reconciled:
    kept = [name for name in new if name in old]
    return Reconciled(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in kept if old[name] != new[name]),
        unchanged=tuple(name for name in kept if old[name] == new[name]),
    )
