"""The routes of the registry's API, and who may use each.

Below: one module for each group of endpoints. Above: a composition root puts these routes into a
``GuardedApp``.
"""

from __future__ import annotations

from collections.abc import Iterator

from bascule.asgi.guard import BodyRule, GuardedRoute, route
from bascule.auth.identity import Permission
from bascule.clock import Clock
from bascule.control.api.history import History
from bascule.control.api.imports import Imports
from bascule.control.api.node_port import NodeFace
from bascule.control.api.proposals import Proposals
from bascule.control.api.records import Collection, Records
from bascule.control.api.refusals import Endpoint, told
from bascule.control.api.servers import Trials
from bascule.control.api.snapshot import Whole
from bascule.control.api.watch import Watch
from bascule.control.registry.service import RegistryService

PUBLIC = "/api/v1/mcp"
ADMIN = "/admin/api/mcp"
SERVERS = Collection("server", "servers")
COLLECTIONS = (
    SERVERS,
    Collection("task", "tasks"),
    Collection("profile", "profiles"),
    Collection("backend", "backends"),
)
PLATFORM = Collection("platform", "platform")
#: A merge patch has a media type of its own (RFC 7396); plain JSON will do.
MERGE = BodyRule(media_types=("application/json", "application/merge-patch+json"))


def registry_routes(
    service: RegistryService, *, clock: Clock, node: NodeFace | None = None
) -> list[GuardedRoute]:
    """Return every route of the registry's API; ``node`` answers what only a node can."""
    return [
        *_public(service, clock),
        *_trials(Trials(service, node)),
        *_imports(Imports(service)),
        *(made for collection in COLLECTIONS for made in _collection(service, collection)),
        *_platform(Records(service, PLATFORM, ADMIN)),
        _route(f"{ADMIN}/proposals", Proposals(service).list, "GET", "registry:accept"),
        *_past(History(service)),
    ]


def _public(service: RegistryService, clock: Clock) -> Iterator[GuardedRoute]:
    servers = Records(service, SERVERS, PUBLIC)
    yield _read(f"{PUBLIC}/servers", servers.list)
    yield _read(f"{PUBLIC}/servers/{{id}}", servers.get)
    yield _read(f"{PUBLIC}/snapshot", Whole(service).snapshot)
    yield _read(f"{PUBLIC}/watch", Watch(service, clock).watch)


def _trials(trials: Trials) -> Iterator[GuardedRoute]:
    one = f"{ADMIN}/servers/{{id}}"
    yield _route(f"{one}/test", trials.test, "POST", "servers:test")
    yield _route(f"{one}/tools", trials.tools, "GET", "servers:test")


def _imports(imports: Imports) -> Iterator[GuardedRoute]:
    yield _write(f"{ADMIN}/import", imports.take_in, "POST")
    yield _write(f"{ADMIN}/servers/import", imports.take_in, "POST")


def _collection(service: RegistryService, collection: Collection) -> Iterator[GuardedRoute]:
    records = Records(service, collection, ADMIN)
    many = f"{ADMIN}/{collection.name}"
    yield _read(many, records.list)
    yield _write(many, records.create, "POST")
    yield from _one(f"{many}/{{id}}", records)
    yield _route(f"{many}/{{id}}/accept", records.accept, "POST", "registry:accept")


def _platform(platform: Records) -> Iterator[GuardedRoute]:
    yield from _one(f"{ADMIN}/platform", platform)


def _one(path: str, records: Records) -> Iterator[GuardedRoute]:
    yield _read(path, records.get)
    yield _write(path, records.put, "PUT")
    yield route(path, told(records.patch), ["PATCH"], permission="registry:write", body=MERGE)
    yield _write(path, records.delete, "DELETE")
    yield _write(f"{path}/adopt", records.adopt, "POST")


def _past(history: History) -> Iterator[GuardedRoute]:
    yield _read(f"{ADMIN}/history", history.history)
    yield _read(f"{ADMIN}/diff", history.diff)
    yield _write(f"{ADMIN}/rollback", history.rollback, "POST")


def _read(path: str, endpoint: Endpoint) -> GuardedRoute:
    return _route(path, endpoint, "GET", "registry:read")


def _write(path: str, endpoint: Endpoint, method: str) -> GuardedRoute:
    return _route(path, endpoint, method, "registry:write")


def _route(path: str, endpoint: Endpoint, method: str, permission: Permission) -> GuardedRoute:
    return route(path, told(endpoint), [method], permission=permission)
