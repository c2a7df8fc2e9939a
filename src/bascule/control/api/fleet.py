"""The nodes over HTTP: how each stands, what it is assigned, and what that comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import only_parameters
from bascule.clock import Clock, rfc3339
from bascule.control.api import query
from bascule.control.registry.service import RegistryService
from bascule.control.registry.status import NodeReport
from bascule.errors import InvalidRecord
from bascule.model.assignment import Assignment
from bascule.wire.api.addresses import NODES
from bascule.wire.api.nodes import MAX_NAME, NewAssignment
from bascule.wire.api.overview import UNSEEN, NodeDetail, NodeList, NodeShown


class Fleet:
    """All nodes of a registry; ``versions`` are those of nodes of which they are known."""

    def __init__(self, service: RegistryService, clock: Clock, versions: Mapping[str, str]) -> None:
        self._service = service
        self._clock = clock
        self._versions = versions

    def routes(self) -> list[GuardedRoute]:
        """Return the routes."""
        any_name = f"{NODES}/{{name:path}}"  # that of a worker has a slash, as in east/2
        assigned = f"{NODES}/{{name}}/assignment"
        return [
            route(NODES, self.list, ["GET"], permission="nodes:read"),
            route(assigned, self.assigned, ["GET"], permission="nodes:read"),
            route(assigned, self.assign, ["PUT"], permission="policy:write").confirmed(),
            route(any_name, self.show, ["GET"], permission="nodes:read"),
        ]

    async def list(self, request: Request) -> Response:
        """List the nodes, with what each reported last and what it is assigned."""
        only_parameters(request)
        return json_response(NodeList(self.nodes()))

    async def show(self, request: Request) -> Response:
        """Return one node, with the tasks and servers that it serves."""
        only_parameters(request)
        name: str = request.path_params["name"]
        found = next((node for node in self.nodes() if node.name == name), None)
        if found is None:
            raise Refused("not_found", f"there is no node {name!r}")
        return json_response(self._detail(found))

    async def assigned(self, request: Request) -> Response:
        """Return what a node serves, whether or not it was ever here."""
        only_parameters(request)
        return json_response(self._detail(self._one(request.path_params["name"])))

    async def assign(self, request: Request) -> Response:
        """Say what a node serves, whether or not it was ever here."""
        only_parameters(request)
        name: str = request.path_params["name"]
        given = await read_as(request, NewAssignment)
        self._refuse_unfit(name)
        service = self._service
        await service.assignments.assign(
            name,
            Assignment(tasks=given.tasks, labels=given.labels),
            query.author(request),
            at=self._clock.now(),
            note=service.note,
        )
        service.tick()  # whoever follows here hears of it
        return json_response(self._detail(self._one(name)))

    def nodes(self) -> tuple[NodeShown, ...]:
        """Return all that reported, and those that are waited for."""
        reports = {report.node: report for report in self._service.standing.nodes()}
        names = {*reports, *(one.node for one in self._service.assignments)}
        return tuple(self._shown(name, reports.get(name)) for name in sorted(names))

    def _one(self, name: str) -> NodeShown:
        reports = {report.node: report for report in self._service.standing.nodes()}
        return self._shown(name, reports.get(name))

    def _refuse_unfit(self, name: str) -> None:
        if len(name) > MAX_NAME:
            raise InvalidRecord([f"name: expected up to {MAX_NAME} characters"])
        if name in self._service.standing.own:
            words = f"name: {name!r} is the control plane's own node, which serves everything"
            raise Refused("wrong_state", words, details={"field": "name"})

    def _shown(self, name: str, report: NodeReport | None) -> NodeShown:
        standing, assigned = self._service.standing, self._service.assignments.of(name)
        states = Counter[str]() if report is None else Counter(s.state for s in report.servers)
        return NodeShown(
            name=name,
            state=UNSEEN if report is None else standing.silence_of(report) or report.state,
            revision=0 if report is None else report.revision,
            version=self._versions.get(name),
            last_seen=None if report is None else rfc3339(report.at),
            servers=dict(sorted(states.items())),
            doubled_at=rfc3339(standing.doubled.get(name)),
            reason=None if report is None else report.reason,
            tasks=assigned.tasks,
            labels=assigned.labels,
        )

    def _detail(self, node: NodeShown) -> NodeDetail:
        assignments = self._service.assignments
        share, assigned = assignments.share(node.name), assignments.get(node.name)
        return NodeDetail(
            node=node,
            assigned_by=None if assigned is None else assigned.actor,
            assigned_at=None if assigned is None else rfc3339(assigned.at),
            serves_tasks=_sorted(share.tasks),
            serves_servers=_sorted(share.servers),
            warnings=tuple(self._doubts(node)),
        )

    def _doubts(self, node: NodeShown) -> Iterator[str]:
        """Yield which names of an assignment lead to nothing."""
        registry = self._service.snapshot()
        for name in node.tasks or ():
            if name not in registry.tasks:
                yield f"there is no task {name!r} any more"
        tags = {tag for server in registry.servers.values() for tag in server.tags}
        for name in node.labels or ():
            if name not in tags:
                yield f"no server has the tag {name!r}"


def _sorted(names: frozenset[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))
