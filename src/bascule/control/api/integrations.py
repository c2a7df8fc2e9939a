"""``GET /api/v1/me/integrations``: what a task offers a person, and what of it they have.

Servers and tools that the task itself leaves out are not told of. Nobody is asked for their tools.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import json_response
from bascule.asgi.parameters import only_parameters
from bascule.asgi.speaker import speaker
from bascule.auth.identity import Principal
from bascule.control.api.me import refusal
from bascule.control.api.tool_shelf import Shelf, ToolShelf
from bascule.control.registry.offload import apart
from bascule.errors import SessionRefused
from bascule.model.json import JsonObject
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy
from bascule.policy.access import compile_access
from bascule.policy.characters import neutralise
from bascule.policy.compose import compose, for_anybody
from bascule.wire.api.me import Integration, Integrations, OwnTool, Standing

#: Of a description, so much is shown; and no task offers more tools than so many.
MAX_TEXT = 2048
MAX_TOOLS = 10_000
#: A choice as it is.
KEPT: JsonObject = {}


class OwnIntegrations:
    """The endpoint."""

    def __init__(self, shelf: ToolShelf) -> None:
        self._shelf = shelf

    async def get(self, request: Request) -> Response:
        """Say what the task of the token offers, and what the token's person has of it."""
        only_parameters(request)
        asking, shelf = speaker(request.scope), await self._shelf.current()
        work = partial(integrations_of, shelf, asking, self._shelf.environment)
        return json_response(await apart(shelf.size, work))


def integrations_of(shelf: Shelf, asking: Principal, environment: str | None) -> Integrations:
    """Take what a task offers apart by who left something out."""
    registry, task = shelf.registry, shelf.registry.tasks.get(asking.task_id or "")
    policy = TaskPolicy() if task is None else replace(for_anybody(task), max_tools=MAX_TOOLS)
    look = _Look(shelf, policy, environment, acting=asking.acts_for_users)
    offered, defaults = look.offered()
    everybody = look.sees(offered, None)
    given = look.sees(offered, asking.person, own=None)
    had = look.sees(offered, asking.person)
    listed = look.sees(offered, asking.person, own={"enabled_server_ids": None})
    mine = Seen(had.servers, listed.tools)
    return Integrations(
        revision=registry.revision,
        person=asking.person,
        task=asking.task_id,
        refused=refusal(registry, asking),
        integrations=tuple(
            _integration(shelf, server, everybody, given, mine, starts_with=server in defaults)
            for server in offered
        ),
    )


class Seen(Struct, frozen=True):
    """The servers of a session, and its tools by the names that models use."""

    servers: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()


class _Look:
    """Sessions of one task that ask for all they may, seen by different people."""

    def __init__(
        self, shelf: Shelf, policy: TaskPolicy, environment: str | None, *, acting: bool
    ) -> None:
        self._shelf = shelf
        self._policy = policy
        self._environment = environment
        self._acting = acting

    def offered(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """Return the servers that a session of the task may have, and those that it begins with."""
        if not self._policy.enabled:
            return (), frozenset()
        registry = self._shelf.registry
        found = compose(registry, self._policy, environment=self._environment)
        may = (
            server
            for server in registry.servers
            if all(one.reason == "not_default" for one in found.objections(server))
        )
        return tuple(may), frozenset(found.servers)

    def sees(
        self, servers: tuple[str, ...], person: str | None, *, own: JsonObject | None = KEPT
    ) -> Seen:
        """Return what a person's session has with this change of their choice, None without it."""
        try:
            found = compose(
                _chosen(self._shelf.registry, person, own),
                self._policy,
                SessionRequest(server_ids=servers),
                environment=self._environment,
                person=person,
                acting=self._acting,
            )
        except SessionRefused:
            return Seen()
        granted = compile_access(found, self._shelf.known).grants
        return Seen(frozenset(found.servers), frozenset(granted))


def _chosen(registry: Snapshot, person: str | None, own: JsonObject | None) -> Snapshot:
    """Return the registry with another choice of a person."""
    record = registry.users.get(person or "")
    if record is None or record.own is None or own is KEPT:
        return registry
    chosen = None if own is None else replace(record.own, **own)
    return replace(registry, users={**registry.users, record.user_id: replace(record, own=chosen)})


def _integration(
    shelf: Shelf, server: str, everybody: Seen, given: Seen, had: Seen, *, starts_with: bool
) -> Integration:
    tools = tuple(
        OwnTool(
            name=one.tool.model_name,
            tool_name=one.tool_name,
            description=neutralise(one.tool.description[:MAX_TEXT]).text,
            effect=one.effect,
            approval=one.approval,
            standing=_standing(one.tool.model_name, given.tools, had.tools),
        )
        for one in shelf.facts.get(server, ())
        if one.tool.model_name in everybody.tools
    )
    return Integration(
        server_id=server,
        display_name=shelf.registry.servers[server].display_name,
        standing=_standing(server, given.servers, had.servers),
        starts_with=starts_with,
        listed=server in shelf.facts,
        tools=tools,
    )


def _standing(name: str, given: frozenset[str], had: frozenset[str]) -> Standing:
    return "on" if name in had else "off" if name in given else "withheld"
