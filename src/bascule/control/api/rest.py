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
from bascule.control.api import query
from bascule.control.api.catalogue import Tools
from bascule.control.api.effective import EffectiveSets
from bascule.control.api.fresh import at_least
from bascule.control.api.history import History
from bascule.control.api.imports import Imports
from bascule.control.api.integrations import OwnIntegrations
from bascule.control.api.me import Myself
from bascule.control.api.node_port import AnyNode, FarNodes, NodeFace
from bascule.control.api.nodes import Reports, refuse_part
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
    NODE_REPORT,
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
    far: FarNodes | None = None,
    environment: str | None = None,
) -> list[GuardedRoute]:
    """Return every route of the registry's API; ``node`` answers what only a node can.

    It is the one of this process, if there is one; ``far`` are those of others.

    ``environment`` is the node's, by which profiles narrow its sessions.
    """
    make, shelf = _Maker(service), ToolShelf(service, environment)
    nodes = AnyNode(node, far, service.standing.own)
    return [
        *_public(make, service, clock),
        *_trials(make, Trials(service, nodes, clock)),
        *_imports(make, Imports(service)),
        *(made for kind in KINDS for made in _kind(make, Records(service, kind, ADMIN), kind)),
        make.route(f"{ADMIN}/proposals", Proposals(service).list, "GET", "registry:accept"),
        *_past(make, History(service)),
        *_catalogue(make, shelf),
        *_own(make, Myself(service), OwnIntegrations(shelf)),
    ]


class _Maker:
    """Makes routes whose refusals the guard tells the audit of, and whose reads may wait.

    A read may say ``at_least=REVISION``: whoever wrote through one replica reads no less through
    another.
    """

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    def read(self, path: str, endpoint: Endpoint) -> GuardedRoute:
        return self.route(path, endpoint, "GET", "registry:read")

    def write(
        self, path: str, endpoint: Endpoint, method: str, body: BodyRule = DEFAULT_BODY
    ) -> GuardedRoute:
        return self.route(path, endpoint, method, "registry:write", body)

    def route(
        self,
        path: str,
        endpoint: Endpoint,
        method: str,
        permission: Permission,
        body: BodyRule = DEFAULT_BODY,
    ) -> GuardedRoute:
        @wraps(endpoint)
        async def telling(request: Request) -> ASGIApp:
            if permission == "registry:read":
                refuse_part(self._service, query.principal(request))
            try:
                if method == "GET" and request.scope["query_string"]:
                    request = await at_least(request, self._service)
                return await endpoint(request)
            except NotConfirmed as error:
                raise unconfirmed(str(error)) from error
            except RegistryError as error:  # the guard tells the audit of callers who are refused
                raise Refused(error.code, str(error), details=error.details) from error

        return route(path, telling, [method], permission=permission, body=body)


def _public(make: _Maker, service: RegistryService, clock: Clock) -> Iterator[GuardedRoute]:
    servers = Records(service, "server", PUBLIC)
    yield make.read(servers.address, servers.list)
    yield make.read(f"{servers.address}/{{id}}", servers.get)
    yield make.read(SNAPSHOT, Whole(service).snapshot)
    yield make.read(WATCH, Watch(service, clock).watch)
    yield make.route(NODE_REPORT, Reports(service, clock).report, "POST", "status:write")


def _trials(make: _Maker, trials: Trials) -> Iterator[GuardedRoute]:
    one = f"{ADMIN}/servers/{{id}}"
    yield make.route(f"{one}/test", trials.test, "POST", "servers:test")
    yield make.write(f"{ADMIN}/servers/test", trials.test_draft, "POST").confirmed()
    yield make.route(f"{one}/tools", trials.tools, "GET", "servers:test")


def _imports(make: _Maker, imports: Imports) -> Iterator[GuardedRoute]:
    yield make.write(f"{ADMIN}/import", imports.take_in, "POST")
    yield make.write(f"{ADMIN}/servers/import", imports.take_in, "POST")


def _kind(make: _Maker, records: Records, kind: Kind) -> Iterator[GuardedRoute]:
    many = records.address
    if kind == "platform":  # there is one
        yield from _one(make, many, records)
        return
    yield make.read(many, records.list)
    yield make.write(many, records.create, "POST")
    yield from _one(make, f"{many}/{{id}}", records)
    yield make.route(f"{many}/{{id}}/accept", records.accept, "POST", "registry:accept")
    refuse = make.route(f"{many}/{{id}}/refuse", records.refuse, "POST", "registry:accept")
    yield refuse.confirmed(ever=False)


def _one(make: _Maker, path: str, records: Records) -> Iterator[GuardedRoute]:
    yield make.read(path, records.get)
    yield make.write(path, records.put, "PUT")
    yield make.write(path, records.patch, "PATCH", MERGE)
    yield make.write(path, records.delete, "DELETE")
    yield make.write(f"{path}/adopt", records.adopt, "POST")


def _past(make: _Maker, history: History) -> Iterator[GuardedRoute]:
    yield make.read(f"{ADMIN}/history", history.history)
    yield make.read(f"{ADMIN}/diff", history.diff)
    yield make.write(f"{ADMIN}/rollback", history.rollback, "POST")
    yield make.route(f"{ADMIN}/announce", history.announce, "POST", "registry:accept")


def _catalogue(make: _Maker, shelf: ToolShelf) -> Iterator[GuardedRoute]:
    tools, sets = Tools(shelf), EffectiveSets(shelf)
    yield make.read(TOOLS, tools.list)
    yield make.read(f"{TOOLS}/{{server_id}}/{{tool:path}}/access", tools.access)
    yield make.route(EFFECTIVE, sets.ask, "POST", "registry:read")


def _own(make: _Maker, myself: Myself, integrations: OwnIntegrations) -> Iterator[GuardedRoute]:
    yield make.route(ME, myself.get, "GET", "identity:read")
    yield make.route(ME, myself.patch, "PATCH", "identity:read", MERGE)
    yield make.route(INTEGRATIONS, integrations.get, "GET", "identity:read")
