"""Where nodes of other processes report: each for itself, under the name of its token.

``Reports.take`` is for every face: what a node says is judged and kept there.
"""

from __future__ import annotations

from collections import Counter

from msgspec import convert
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import only_parameters
from bascule.auth.identity import Principal
from bascule.clock import Clock
from bascule.control.api import query
from bascule.control.registry.service import RegistryService
from bascule.control.registry.status import NodeReport
from bascule.errors import refuse_any
from bascule.model.assignment import ALL
from bascule.model.status import ServerStatus
from bascule.policy.characters import render_safe
from bascule.wire.api.nodes import NodeHeard, NodeWords, ServerWords


class Reports:
    """The endpoint of nodes' reports."""

    def __init__(self, service: RegistryService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def report(self, request: Request) -> Response:
        """Take what a node says of itself and of its servers, in place of what it said before."""
        only_parameters(request)
        words = await read_as(request, NodeWords)
        return json_response(await self.take(words, query.principal(request).name))

    async def take(self, words: NodeWords, name: str) -> NodeHeard:
        """Take what the node of a name says; raise where it may not be said."""
        self._refuse_strange(words, name)
        standing = self._service.standing
        if words.state == "ended":
            await standing.forget_node(words.node)
        else:
            await standing.report(self._report(words))
        return NodeHeard(self._service.view.revision)

    def _refuse_strange(self, words: NodeWords, name: str) -> None:
        """Refuse what is said for another node, and two words on one server."""
        if words.node != name:
            raise _forbidden(f"a node reports under the name of its token, {name!r}")
        refuse_own(self._service, name)
        counts = Counter(one.server_id for one in words.servers)
        twice = sorted(server_id for server_id, count in counts.items() if count > 1)
        refuse_any([f"servers: {one!r} is named more than once" for one in twice])

    def _report(self, words: NodeWords) -> NodeReport:
        return NodeReport(
            node=words.node,
            revision=words.revision,
            state=words.state,
            servers=tuple(map(_status, words.servers)),
            reason=_shown(words.reason),
            at=self._clock.now(),
        )


def refuse_own(service: RegistryService, name: str) -> None:
    """Refuse the name of a node of this process: nobody else speaks for that."""
    if name in service.standing.own:
        raise _forbidden(f"{name!r} is the control plane's own node: make a token of another")


def refuse_part(service: RegistryService, asking: Principal) -> None:
    """Refuse what is of the whole registry to a node that is assigned a part of it."""
    assigned = service.assignments.of(asking.name)
    if asking.role == "node" and assigned != ALL:
        words = f"{asking.name!r} is assigned {assigned}, and told of that on its gRPC stream alone"
        raise _forbidden(words)


def _forbidden(why: str) -> Refused:
    return Refused("forbidden", f"node: {why}", details={"field": "node"})


def _status(words: ServerWords) -> ServerStatus:
    """Return a word in the registry's terms, its texts fit to be shown."""
    sandbox = words.sandbox
    return replace(
        convert(words, ServerStatus, from_attributes=True),
        last_error=_shown(words.last_error),
        starting=_shown(words.starting),
        sandbox=None if sandbox is None else replace(sandbox, why=render_safe(sandbox.why)),
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else render_safe(text)
