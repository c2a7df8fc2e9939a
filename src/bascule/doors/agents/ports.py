"""What the agents API needs of whoever holds the agents; ``bascule.manager.AgentFleet`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from bascule.model.json import JsonObject
from bascule.wire.api.agents import AgentView, ServerChanged, ServerView

#: Who changes something: an administrator alone gives credentials new targets.
Writer = Literal["administrator", "operator"]


class Agents(Protocol):
    """The agents of a process. An id or a name that does not exist raises ``not_found``."""

    def agents(self) -> Sequence[AgentView]:
        """List the agents."""
        ...

    def servers(self, agent_id: str) -> Sequence[ServerView]:
        """List an agent's servers."""
        ...

    def problems(self) -> Sequence[str]:
        """Say what keeps the newest configuration from being in force; nothing if it is."""
        ...

    async def reconnect(self, agent_id: str, server_name: str) -> ServerView:
        """Tear down and connect once; raise what goes wrong."""
        ...

    async def create(self, agent_id: str, entry: JsonObject, by: Writer) -> ServerChanged:
        """Add a server; raise ``already_exists`` when the agent has one of its name."""
        ...

    async def replace(
        self, agent_id: str, name: str, entry: JsonObject, by: Writer
    ) -> ServerChanged:
        """Put an entry in the place of a server's; an inherited one is overridden."""
        ...

    async def merge(self, agent_id: str, name: str, patch: JsonObject, by: Writer) -> ServerChanged:
        """Change some fields; null takes one away. An inherited server is overridden."""
        ...

    async def remove(self, agent_id: str, name: str) -> ServerChanged:
        """Take an agent's own server away; raise ``wrong_state`` for an inherited one."""
        ...
