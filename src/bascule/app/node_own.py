"""What a node answers to the owner of its data directory: how it stands, and the end of a doubt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from bascule.app.instance import asked_by_owner
from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.audit.anchors import AnchorsUnavailable
from bascule.client.followed import Welcome
from bascule.client.rpc import RpcSource
from bascule.client.snapshots import words_of
from bascule.clock import rfc3339
from bascule.errors import BasculeError
from bascule.model.assignment import ALL, Assignment
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.node.ledger_sender import LedgerSender
from bascule.node.sync.follower import Follower
from bascule.wire.api.addresses import NODE, NODE_ACCEPT, NODE_LEDGER
from bascule.wire.api.nodes import NodeStanding


def standing_of(
    node: str, registry: str, source: RpcSource, follower: Follower, bridge: Bridge
) -> NodeStanding:
    """Return how a node stands."""
    reason = follower.distrust() or follower.problem
    return NodeStanding(
        node=node,
        registry=registry,
        store_id=follower.snapshot.store_id,
        revision=follower.revision,
        state=follower.state,
        reason=None if reason is None else str(reason),
        confirmed_at=rfc3339(follower.confirmed_at),
        trusted_until=rfc3339(follower.trusted_until),
        assigned=_assigned(source.welcome, follower.snapshot),
        servers=tuple(map(words_of, bridge.statuses())),
    )


def _assigned(welcome: Welcome | None, snapshot: Snapshot) -> str:
    """Say what a node serves; while its control plane is away it knows no more than whether all."""
    if welcome is not None:
        return str(Assignment(tasks=welcome.tasks, labels=welcome.labels))
    return "a part of the registry" if snapshot.part else str(ALL)


def own_routes(
    data: Path,
    follower: Follower,
    standing: Callable[[], NodeStanding],
    sender: LedgerSender | None = None,
) -> list[GuardedRoute]:
    """Return the routes; they need no token, but the proof of who can read the data directory."""
    by_owner = asked_by_owner(data)

    def refuse_others(request: Request) -> None:
        if not by_owner(request):
            words = "this is for the owner of the node's data directory: bascule node status"
            raise Refused("forbidden", words)

    async def status(request: Request) -> Response:
        """Say how the node stands."""
        refuse_others(request)
        return json_response(standing())

    async def accept(request: Request) -> Response:
        """Take what the registry has, whatever it is."""
        refuse_others(request)
        try:
            await follower.accept()
        except (BasculeError, TimeoutError) as error:
            words = str(error) or "the control plane did not answer in time"
            raise Refused("store_unavailable", f"nothing was taken: {words}") from error
        return json_response(standing())

    async def accept_ledger(request: Request) -> Response:
        """Go on with the ledger of the node as a new one."""
        refuse_others(request)
        if sender is None:
            raise Refused("wrong_state", "the ledger is off: ledger.enabled is false")
        try:
            await sender.begin_anew()
        except AnchorsUnavailable as error:
            raise Refused("wrong_state", str(error)) from error
        return json_response(standing())

    return [
        route(NODE_LEDGER, accept_ledger, ["POST"], permission=OPEN),
        route(NODE, status, ["GET"], permission=OPEN),
        route(NODE_ACCEPT, accept, ["POST"], permission=OPEN),
    ]
