"""Changes to a file of agents, as functions from what it says now to its new text.

Each takes the file as it was read under the lock, so that what it checks is what it changes. An
inherited server that is changed for one agent becomes that agent's own.
"""

from __future__ import annotations

from collections.abc import Callable

from bascule.errors import BasculeError
from bascule.manager.config import DEFAULTS, McpServerConfig, plain_entry
from bascule.manager.core import UnknownServer
from bascule.manager.document import drop_entry, set_entry
from bascule.manager.file import AgentsText, Edit, refuse_unknown
from bascule.manager.guard import By, refuse_unfit
from bascule.manager.masks import refuse_moved_entry, unmasked_entry
from bascule.manager.record import checked_entry
from bascule.model.json import JsonObject
from bascule.wire.merge_patch import merge_patch


class ServerExists(BasculeError):
    """The agent has a server of this name already."""

    code = "already_exists"


class Inherited(BasculeError):
    """The server comes from ``[[defaults.mcp]]`` and cannot be taken away from one agent."""

    code = "wrong_state"


def creation(agent_id: str, entry: JsonObject, by: By = "owner") -> tuple[str, Edit]:
    """Return a new server's name and the edit that adds it; raise InvalidRecord."""
    new = checked_entry(unmasked_entry(entry, None))
    plain, name = plain_entry(new), new.name

    def edit(now: AgentsText) -> str:
        if name in _servers(now, agent_id):
            raise ServerExists(f"agent {agent_id!r} has a server {name!r} already")
        refuse_unfit(by, entry, new, None, now.config)
        return set_entry(now.text, agent_id, plain)

    return name, edit


def replacement(agent_id: str, name: str, entry: JsonObject, by: By = "owner") -> Edit:
    """Return the edit that puts an entry in the place of a server's."""
    return _change(agent_id, name, entry, by, lambda _: entry)


def merge(agent_id: str, name: str, patch: JsonObject, by: By = "owner") -> Edit:
    """Return the edit that changes some fields (JSON merge patch: null takes one away)."""
    return _change(agent_id, name, patch, by, lambda old: merge_patch(plain_entry(old), patch))


def _change(
    agent_id: str,
    name: str,
    given: JsonObject,
    by: By,
    whole: Callable[[McpServerConfig], JsonObject],
) -> Edit:
    def edit(now: AgentsText) -> str:
        old = _server(now, agent_id, name)
        entry = unmasked_entry(whole(old), old)
        refuse_moved_entry(given, entry, old)
        new = checked_entry(entry)
        refuse_unfit(by, given, new, old, now.config)
        return set_entry(now.text, agent_id, plain_entry(new))

    return edit


def removal(agent_id: str, name: str) -> Edit:
    """Return the edit that takes a server of the agent's own away."""

    def edit(now: AgentsText) -> str:
        _server(now, agent_id, name)
        if name not in {config.name for config in now.config.own(agent_id)}:
            raise Inherited(
                f"server {name!r} comes from [[defaults.mcp]]: disable it for this agent, "
                f"or remove it from {DEFAULTS!r}"
            )
        return drop_entry(now.text, agent_id, name)

    return edit


def _servers(now: AgentsText, agent_id: str) -> dict[str, McpServerConfig]:
    refuse_unknown(agent_id, (*now.config.ids, DEFAULTS))
    own = now.config.own(agent_id)
    found = own if agent_id == DEFAULTS else now.config.servers(agent_id)
    return {config.name: config for config in found}


def _server(now: AgentsText, agent_id: str, name: str) -> McpServerConfig:
    found = _servers(now, agent_id).get(name)
    if found is None:
        raise UnknownServer(f"agent {agent_id!r} has no server {name!r}")
    return found
