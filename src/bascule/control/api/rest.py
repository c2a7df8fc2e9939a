"""The routes of the registry's API, and who may use each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps

from starlette.requests import Request
from starlette.types import ASGIApp

from bascule.asgi.confirmation import unconfirmed
from bascule.asgi.errors import Refused
from bascule.asgi.guard import DEFAULT_BODY, BodyRule, Endpoint, GuardedRoute, route
from bascule.auth.identity import Permission
from bascule.clock import Clock
from bascule.control.api.catalogue import Tools
from bascule.control.api.effective import EffectiveSets
from bascule.control.api.history import History
from bascule.control.api.imports import Imports
from bascule.control.api.integrations import OwnIntegrations
from bascule.control.api.me import Myself
from bascule.control.api.node_port import NodeFace
from bascule.control.api.proposals import Proposals
from bascule.control.api.records import Records
from bascule.control.api.servers import Trials
from bascule.control.api.snapshot import Whole
from bascule.control.api.tool_shelf import ToolShelf
from bascule.control.api.watch import Watch
from bascule.control.registry.errors import NotConfirmed, RegistryError
from bascule.control.registry.service import RegistryService
from bascule.model.kinds import KINDS, Kind
from bascule.wire.api.addresses import (
    ADMIN,
    EFFECTIVE,
    INTEGRATIONS,
    ME,
    PUBLIC,
    SNAPSHOT,
    TOOLS,
    WATCH,
)

#: A merge patch has a media type of its own (RFC 7396); plain JSON will do.
MERGE = BodyRule(media_types=("application/json", "application/merge-patch+json"))


def registry_routes(
    service: RegistryService,
    *,
    clock: Clock,
    node: NodeFace | None = None,
    environment: str | None = None,
) -> list[GuardedRoute]:
    """Return every route of the registry's API; ``node`` answers what only a node can.

    ``environment`` is the node's, by which profiles narrow its sessions.
    """
    shelf = ToolShelf(service, environment)
    return [
        *_public(service, clock),
        *_trials(Trials(service, node, clock)),
        *_imports(Imports(service)),
        *(made for kind in KINDS for made in _kind(Records(service, kind, ADMIN), kind)),
        _route(f"{ADMIN}/proposals", Proposals(service).list, "GET", "registry:accept"),
        *_past(History(service)),
        *_catalogue(shelf),
        *_own(Myself(service), OwnIntegrations(shelf)),
    ]


def _public(service: RegistryService, clock: Clock) -> Iterator[GuardedRoute]:
    servers = Records(service, "server", PUBLIC)
    yield _read(servers.address, servers.list)
    yield _read(f"{servers.address}/{{id}}", servers.get)
    yield _read(SNAPSHOT, Whole(service).snapshot)
    yield _read(WATCH, Watch(service, clock).watch)


def _trials(trials: Trials) -> Iterator[GuardedRoute]:
    one = f"{ADMIN}/servers/{{id}}"
    yield _route(f"{one}/test", trials.test, "POST", "servers:test")
    yield _write(f"{ADMIN}/servers/test", trials.test_draft, "POST").confirmed()
    yield _route(f"{one}/tools", trials.tools, "GET", "servers:test")


def _imports(imports: Imports) -> Iterator[GuardedRoute]:
    yield _write(f"{ADMIN}/import", imports.take_in, "POST")
    yield _write(f"{ADMIN}/servers/import", imports.take_in, "POST")


def _kind(records: Records, kind: Kind) -> Iterator[GuardedRoute]:
    many = records.address
    if kind == "platform":  # there is one
        yield from _one(many, records)
        return
    yield _read(many, records.list)
    yield _write(many, records.create, "POST")
    yield from _one(f"{many}/{{id}}", records)
    yield _route(f"{many}/{{id}}/accept", records.accept, "POST", "registry:accept")
    refuse = _route(f"{many}/{{id}}/refuse", records.refuse, "POST", "registry:accept")
    yield refuse.confirmed(ever=False)


def _one(path: str, records: Records) -> Iterator[GuardedRoute]:
    yield _read(path, records.get)
    yield _write(path, records.put, "PUT")
    yield _write(path, records.patch, "PATCH", MERGE)
    yield _write(path, records.delete, "DELETE")
    yield _write(f"{path}/adopt", records.adopt, "POST")


def _past(history: History) -> Iterator[GuardedRoute]:
    yield _read(f"{ADMIN}/history", history.history)
    yield _read(f"{ADMIN}/diff", history.diff)
    yield _write(f"{ADMIN}/rollback", history.rollback, "POST")


def _catalogue(shelf: ToolShelf) -> Iterator[GuardedRoute]:
    tools, sets = Tools(shelf), EffectiveSets(shelf)
    yield _read(TOOLS, tools.list)
    yield _read(f"{TOOLS}/{{server_id}}/{{tool:path}}/access", tools.access)
    yield _route(EFFECTIVE, sets.ask, "POST", "registry:read")


def _own(myself: Myself, integrations: OwnIntegrations) -> Iterator[GuardedRoute]:
    yield _route(ME, myself.get, "GET", "identity:read")
    yield _route(ME, myself.patch, "PATCH", "identity:read", MERGE)
    yield _route(INTEGRATIONS, integrations.get, "GET", "identity:read")


def _read(path: str, endpoint: Endpoint) -> GuardedRoute:
    return _route(path, endpoint, "GET", "registry:read")


def _write(
    path: str, endpoint: Endpoint, method: str, body: BodyRule = DEFAULT_BODY
) -> GuardedRoute:
    return _route(path, endpoint, method, "registry:write", body)


def _route(
    path: str,
    endpoint: Endpoint,
    method: str,
    permission: Permission,
    body: BodyRule = DEFAULT_BODY,
) -> GuardedRoute:
    @wraps(endpoint)
    async def telling(request: Request) -> ASGIApp:
        try:
            return await endpoint(request)
        except NotConfirmed as error:
            raise unconfirmed(str(error)) from error
        except RegistryError as error:  # the guard tells the audit of callers who are refused
            raise Refused(error.code, str(error), details=error.details) from error

    return route(path, telling, [method], permission=permission, body=body)
