"""All agents of one file: a manager for each, the file followed, and changes written back.

Each agent has its own connections. A new file is reconciled agent by agent; one that cannot be
used changes nothing and is reported until it can. Changes go into the file first, as a whole and
checked, and are then reconciled like any other.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Unpack

from msgspec.structs import asdict, replace

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import InvalidRecord
from bascule.files.watch import changes
from bascule.lifetime import Lifetime
from bascule.manager import edits
from bascule.manager.config import DEFAULTS, AgentsConfig
from bascule.manager.core import STARTUP_SECONDS, McpManager
from bascule.manager.events import ConfigRefused, ConfigReloaded, OnEvent, logger, telling
from bascule.manager.file import AgentsFile, AgentsText, Edit, refuse_unknown
from bascule.manager.guard import By
from bascule.manager.masks import masked_entry
from bascule.manager.record import secret_user, secret_users
from bascule.manager.retry import RetryRules
from bascule.manager.status import ServerStatus
from bascule.model.json import JsonObject
from bascule.model.secret_use import SecretUse
from bascule.model.server import ServerRecord
from bascule.node.assembly import BridgeOptions
from bascule.outbound.references import SecretResolver, resolver_of
from bascule.wire.api.agents import AgentView, ServerChanged, ServerView


class AgentSecrets:
    """Secrets for one agent: they are bound to its servers as ``AGENT/SERVER``."""

    def __init__(self, secrets: SecretResolver, agent_id: str) -> None:
        self._secrets = secrets
        self._agent_id = agent_id

    async def secret(self, name: str, use: SecretUse) -> str:
        """Return the secret for a server of this agent, as ``SecretResolver.secret``."""
        user = secret_user(self._agent_id, use.id)
        return await self._secrets.secret(name, replace(use, id=user))


class AgentFleet(Lifetime):
    """The agents of a file. Use it with ``async with``, and run ``follow`` beside it."""

    def __init__(
        self,
        file: AgentsFile | str | Path,
        *,
        on_event: OnEvent | None = None,
        retry: RetryRules | None = None,
        startup_seconds: float = STARTUP_SECONDS,
        approval_seconds: float = 0.0,
        **options: Unpack[BridgeOptions],
    ) -> None:
        self._clock = options.get("clock", SYSTEM_CLOCK)
        self._file = file if isinstance(file, AgentsFile) else AgentsFile(file, clock=self._clock)
        self._tell = telling(on_event)
        self._secrets = resolver_of(options.get("secrets"))
        self._make = partial(
            McpManager,
            on_event=self._tell,
            retry=retry,
            startup_seconds=startup_seconds,
            approval_seconds=approval_seconds,
            **options,
        )
        self._turn = asyncio.Lock()
        self._config = AgentsConfig()
        self._digest: str | None = None
        self._problems: tuple[str, ...] = ()
        self._managers: dict[str, McpManager] = {}

    @property
    def config(self) -> AgentsConfig:
        """Return the configuration in force."""
        return self._config

    async def start(self) -> None:
        """Read the file and connect every agent; raise InvalidRecord if it cannot be used."""
        async with self._turn:
            await self._take(await asyncio.to_thread(self._file.read))

    async def close(self) -> None:
        """End every agent's connections."""
        async with self._turn:
            managers, self._managers = self._managers, {}
            await asyncio.gather(*(one.disconnect_all() for one in managers.values()))

    async def follow(self) -> None:
        """Reload whenever the file has changed, until cancelled."""
        async with aclosing(changes(self._file.path, self._clock, always=True)) as times:
            async for _ in times:
                if await asyncio.to_thread(self._file.digest) != self._digest:
                    await self.reload()

    async def reload(self) -> tuple[str, ...]:
        """Read the file again; return what is wrong with it, in which case nothing changes."""
        async with self._turn:
            try:
                read = await asyncio.to_thread(self._file.read)
            except InvalidRecord as error:
                self._refuse(error, await asyncio.to_thread(self._file.digest))
            else:
                await self._take(read)
        return self._problems

    def manager(self, agent_id: str) -> McpManager:
        """Return an agent's manager; raise UnknownAgent."""
        refuse_unknown(agent_id, self._managers)
        return self._managers[agent_id]

    def secret_users(self) -> dict[str, ServerRecord]:
        """Return the servers by the names that secrets are bound to, as they stand."""
        return secret_users(self._config)

    def renew_secret(self, name: str) -> None:
        """Have a secret's new value used by every agent."""
        for manager in self._managers.values():
            manager.renew_secret(name)

    @property
    def reference_values(self) -> frozenset[str]:
        """Return what the agents' references gave: no line of a log may show it."""
        managers = tuple(self._managers.values())
        return frozenset(value for one in managers for value in one.reference_values)

    # --- what the agents API asks

    def agents(self) -> list[AgentView]:
        found = [(agent_id, one.statuses()) for agent_id, one in self._managers.items()]
        return [
            AgentView(
                agent_id=agent_id,
                servers=len(statuses),
                connected=sum(status.connected for status in statuses),
                tools=sum(len(status.tools) for status in statuses if status.connected),
            )
            for agent_id, statuses in found
        ]

    def servers(self, agent_id: str) -> list[ServerView]:
        """List an agent's servers, in the order of the file."""
        return [self._view(agent_id, one) for one in self.manager(agent_id).statuses()]

    def problems(self) -> tuple[str, ...]:
        """Say what keeps the file as it is now from being in force."""
        return self._problems

    async def reconnect(self, agent_id: str, server_name: str) -> ServerView:
        """Tear down and connect one server once; raise what goes wrong."""
        return self._view(agent_id, await self.manager(agent_id).reconnect(server_name))

    async def create(self, agent_id: str, entry: JsonObject, by: By = "owner") -> ServerChanged:
        """Add a server of the agent's own, or of all (``defaults``)."""
        name, edit = edits.creation(agent_id, entry, by)
        return await self._edited(agent_id, name, edit)

    async def replace(
        self, agent_id: str, name: str, entry: JsonObject, by: By = "owner"
    ) -> ServerChanged:
        """Put an entry in the place of a server's; an inherited one is overridden."""
        return await self._edited(agent_id, name, edits.replacement(agent_id, name, entry, by))

    async def merge(
        self, agent_id: str, name: str, patch: JsonObject, by: By = "owner"
    ) -> ServerChanged:
        """Change some fields; an inherited server is overridden."""
        return await self._edited(agent_id, name, edits.merge(agent_id, name, patch, by))

    async def remove(self, agent_id: str, name: str) -> ServerChanged:
        """Take a server of the agent's own away; a default it stood in for comes back."""
        return await self._edited(agent_id, name, edits.removal(agent_id, name))

    async def _edited(self, agent_id: str, name: str, edit: Edit) -> ServerChanged:
        """Write a change and bring it into force before anybody is answered."""
        async with self._turn:
            await self._take(await self._file.edit(edit))
        views = [] if agent_id == DEFAULTS else self.servers(agent_id)
        view = next((one for one in views if one.name == name), None)
        return ServerChanged(agent_id=agent_id, server_name=name, server=view)

    def _view(self, agent_id: str, status: ServerStatus) -> ServerView:
        configs = {one.name: one for one in self.manager(agent_id).configs}
        return ServerView(
            **asdict(status),
            agent_id=agent_id,
            origin=self._config.origin(agent_id, status.name),
            phase=status.phase,
            health=status.health,
            tool_count=len(status.tools),
            config=masked_entry(configs[status.name]),
        )

    # --- what a file comes to

    async def _take(self, read: AgentsText) -> None:
        """Bring a file into force: all agents at once."""
        config, old = read.config, self._managers
        first = self._digest is None
        self._config, self._digest, self._problems = config, read.digest, ()
        self._managers = {
            one: old.get(one)
            or self._make(config.servers(one), agent_id=one, secrets=self._secrets_of(one))
            for one in config.ids
        }
        gone = [manager for agent_id, manager in old.items() if agent_id not in config.ids]
        kept = [agent_id for agent_id in config.ids if agent_id in old]
        added = [agent_id for agent_id in config.ids if agent_id not in old]
        await asyncio.gather(
            *(manager.disconnect_all() for manager in gone),
            *(self._managers[one].reconcile(config.servers(one)) for one in kept),
            *(self._managers[one].connect_all() for one in added),
        )
        if not first:
            self._tell_reloaded(config)

    def _secrets_of(self, agent_id: str) -> SecretResolver | None:
        return None if self._secrets is None else AgentSecrets(self._secrets, agent_id)

    def _tell_reloaded(self, config: AgentsConfig) -> None:
        self._tell(
            ConfigReloaded(
                at=self._clock.now(),
                source=str(self._file.path),
                agents=config.ids,
                warnings=config.warnings,
            )
        )

    def _refuse(self, error: InvalidRecord, digest: str | None) -> None:
        """Keep what is in force; remember the file, so that it is reported once."""
        self._digest = digest
        self._problems = error.problems
        source, now = str(self._file.path), self._clock.now()
        logger.warning("%s is not used as it is now: %s", source, "; ".join(error.problems))
        self._tell(ConfigRefused(at=now, source=source, problems=error.problems))
