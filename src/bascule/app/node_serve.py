"""``bascule node serve``: a node alone, which follows a control plane elsewhere.

It has the doors of ``bascule up``, and nothing that governs. It keeps what it knows and a ledger of
its own in its data directory, so that it goes on when the control plane does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.app.data_dir import HOMES_FOLDER, NODE_KEY_FILE, published, served_alone
from bascule.app.doors import Doors, Means, open_doors
from bascule.app.far_parts import KEY_BYTES, far_secrets, own_ledger
from bascule.app.instance import asked_by_owner, instance_routes
from bascule.app.isolation_notice import noticed
from bascule.app.logs import process_log
from bascule.app.node_holds import Holds, open_holds
from bascule.app.node_own import own_routes, standing_of
from bascule.app.node_start import Beginner, NodeMemory, Start, prepare
from bascule.app.node_work import NodeWorker
from bascule.app.serving import Orders, beside, listening
from bascule.app.settings import Settings
from bascule.app.worker_link import Crew
from bascule.asgi.guard import LOOPBACK_HOSTS, GuardedApp, GuardedRoute, GuardRules
from bascule.audit.events import AccessRefused
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger import MemoryLedger
from bascule.audit.log_lines import LoggedLedger, say, say_refused
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.auth.keys import derived
from bascule.auth.node_tokens import NodeTokens
from bascule.client.ledger import RpcLedger
from bascule.client.rpc import RpcAccess, RpcSource
from bascule.clock import SYSTEM_CLOCK
from bascule.db.private_files import private_key
from bascule.doors.health import health_of, health_routes
from bascule.errors import BasculeError
from bascule.model.snapshot import Snapshot
from bascule.model.worker import mark_of
from bascule.node.assembly import Bridge
from bascule.node.ledger_sender import LedgerSender
from bascule.node.sync.follower import Follower, SyncSettings
from bascule.node.sync.judging import by_command
from bascule.outbound.rules import NodeRules
from bascule.policy.compose import admitted
from bascule.wire.api.health import NODE_REFUSED, STALE, Health
from bascule.wire.api.nodes import NodeStanding

#: How long a node that could do without waits for what the control plane has to say at a start.
_SETTLE_SECONDS = 5.0
#: How often a node says the same again; that it lives, its open stream says.
_REPORT_SECONDS = 300.0
#: How long the last report may take.
_LEAVE_SECONDS = 2.0

#: Is told where a node serves, and how it stands then.
Announced: TypeAlias = Callable[[str, NodeStanding], object]
logger = logging.getLogger("bascule.node")

#: Whoever makes a token uses it next: often sooner than nodes are told of it, which takes up to a
#: second, and on a busy machine longer.
_PATIENCE = 3.0


class WorkerPlace(Struct, frozen=True, kw_only=True):
    """The place of a process among the workers of a node."""

    number: int
    crew: Crew
    #: The data directory of all of them, whose owner may ask.
    data: Path


class NodeOrder(Struct, frozen=True, kw_only=True):
    """Which control plane a node follows, and as whom."""

    registry: str
    access: RpcAccess
    name: str | None = None
    #: Files that no record may read, whatever the rules say.
    private: tuple[str, ...] = ()
    #: How long the first start waits for the control plane.
    wait_seconds: float = 30.0
    #: Where the process is one of several of the node.
    worker: WorkerPlace | None = None
    #: Whether records and node belong to the same person, as those of ``bascule up`` do.
    own_records: bool = False


async def serve_node(
    settings: Settings, order: NodeOrder, announce: Announced, orders: Orders
) -> None:
    """Serve until told to stop, and say on standard error what happens meanwhile."""
    data = Path(settings.data_dir)
    with process_log(settings.log):
        for words in unused_settings(settings):
            say(logger, logging.WARNING, words)
        await asyncio.to_thread(prepare, data)
        with served_alone(data):
            async with node_parts(settings, order) as parts:
                await _serve(settings, parts, announce, orders)
        say(logger, logging.INFO, "ended")


def unused_settings(settings: Settings) -> Iterator[str]:
    """Yield which settings have no meaning for a node, of those that look as if they had."""
    given = {
        "mcp.registry_dir": settings.mcp.registry_dir,
        "mcp.registry_file": settings.mcp.registry_file,
        "agents": settings.agents,
        "backends": settings.backends,
    }
    for name in (name for name, value in given.items() if value):
        yield f"{name}: a node has the records of its control plane and no others: not used"


class NodeParts(Struct, frozen=True, kw_only=True):
    """What the routes of a node speak to."""

    name: str
    registry: str
    data: Path
    source: RpcSource
    follower: Follower
    tokens: NodeTokens
    doors: Doors
    start: Start
    ledger: JournaledLedger | None
    holds: Holds
    sender: LedgerSender | None = None
    worker: WorkerPlace | None = None

    @property
    def owned(self) -> Path:
        """Return the data directory whose owner may ask."""
        return self.data if self.worker is None else self.worker.data

    def standing(self) -> NodeStanding:
        """Return how the node stands."""
        found = standing_of(self.name, self.registry, self.source, self.follower, self.doors.bridge)
        crew = () if self.worker is None else self.worker.crew.standings
        return replace(found, workers=crew, ledger=self.sender and self.sender.refusal)

    def troubles(self) -> dict[str, str]:
        """Say what is wrong besides following, by code."""
        distrust = self.follower.distrust()
        found = {
            STALE if distrust is None else distrust.reason: distrust and distrust.words,
            "ledger_unwritable": self.ledger and self.ledger.trouble,
            "ledger_refused": self.sender and self.sender.refusal,
            "snapshot_unwritable": self.start.kept.problem,
        }
        crew = {} if self.worker is None else self.worker.crew.troubles()
        return crew | {code: words for code, words in found.items() if words is not None}

    def let_go(self) -> None:
        """Let what waits for a person come back later, as the process ends."""
        self.holds.approvals.stop()

    def health(self) -> Health:
        """Return how the process is."""
        follower = self.follower
        return health_of(
            follower.revision,
            (status.state for status in self.doors.bridge.statuses()),
            following=follower.state == "ok",
            problem=follower.problem,
            troubles=self.troubles(),
        )

    def unready(self) -> str | None:
        """Say why another node should be asked, if so: one without its control plane serves on."""
        found = self.troubles()
        return found.get(STALE) or found.get(NODE_REFUSED) or found.get("ledger_unwritable")


@asynccontextmanager
async def node_parts(settings: Settings, order: NodeOrder) -> AsyncGenerator[NodeParts, None]:
    """Start a node, from its control plane or from what it kept; it follows within the block."""
    data, tokens = Path(settings.data_dir), NodeTokens(patience=_PATIENCE)
    memory = NodeMemory(tokens)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        source = await enter(RpcSource(order.registry, order.access, on_tokens=memory.take))
        secrets = far_secrets(source)
        beginner = Beginner(source, data, order.wait_seconds)
        start = await beginner.start(order.name, order.access.token)
        stack.push_async_callback(start.kept.close)
        snapshot = await _snapshot(beginner, start, memory)
        root = await asyncio.to_thread(private_key, data / NODE_KEY_FILE, KEY_BYTES)
        crew = None if order.worker is None else data.parent / NODE_KEY_FILE
        kept = await enter(own_ledger(settings, derived(root, "journal"), crew))
        ledger = LoggedLedger(kept or MemoryLedger(limit=0), slow_call_ms=settings.log.slow_call_ms)
        holds = await enter(open_holds(settings, source, kept, root))
        rules = node_rules(settings, order)
        bridge = Bridge.open(
            snapshot,
            rules=rules,
            environment=settings.environment,
            settings=settings.node.limits(),
            ledger=ledger,
            homes=data / HOMES_FOLDER,
            secrets=secrets,
            approver=holds.approvals,
        )
        bridge.metrics.ledger = kept
        bridge.mark = mark_of(order.access.worker)
        tokens.standing = lambda person: admitted(bridge.snapshot, None, person)
        key = derived(root, "wasm-cache")
        means = Means(rules=rules, secrets=secrets, module_key=key, records=lambda: bridge.snapshot)
        doors = await enter(open_doors(settings, bridge, tokens, means))
        follower = _follower(settings, source, bridge, start)
        memory.follow(follower, start.kept)
        for users in (bridge, doors.backends):
            stack.callback(secrets.subscribe(users.renew_secret))
        worker = NodeWorker(source, bridge, SYSTEM_CLOCK, catch_up=follower.catch_up)
        source.on_work, source.at_work = (await enter(worker)).order, worker.works
        sender = None if kept is None else _sender(kept, source, follower)
        works = follower.run(), doors.sessions.keep_clean(), holds.parked.run(), secrets.run()
        await enter(beside(*works, *([] if sender is None else [sender.run()])))
        await enter(_last_words(source))
        await _first_word(beginner, start, memory, follower)
        yield NodeParts(
            name=start.node,
            registry=order.registry,
            data=data,
            source=source,
            follower=follower,
            tokens=tokens,
            doors=doors,
            start=start,
            ledger=kept,
            worker=order.worker,
            holds=holds,
            sender=sender,
        )


async def _snapshot(beginner: Beginner, start: Start, memory: NodeMemory) -> Snapshot:
    """Return what to begin with: what was kept, or what the control plane has."""
    if start.known is None:
        return await beginner.first_snapshot()
    memory.recall(start.known)
    return start.known.snapshot


async def _first_word(
    beginner: Beginner, start: Start, memory: NodeMemory, follower: Follower
) -> None:
    """Wait for what a node cannot serve without, or a moment for what has changed since."""
    if start.known is None:
        await beginner.first_tokens(memory, follower)
    elif start.away is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                await memory.settled.wait()


def _follower(settings: Settings, source: RpcSource, bridge: Bridge, start: Start) -> Follower:
    """Return what follows the control plane; it knows what the node starts from."""
    follower = Follower(source, bridge, settings=rhythm_of(settings), remedy=by_command)
    bridge.distrust = follower.distrust
    if start.known is not None:
        follower.confirmed_at, follower.problem = start.known.confirmed_at, start.away
    return follower


def _sender(ledger: SqliteLedger, source: RpcSource, follower: Follower) -> LedgerSender:
    """Return what sends the ledger up; reports say what is refused of it."""
    sender = LedgerSender(ledger, RpcLedger(source))
    follower.trouble, sender.on_refusal = lambda: sender.refusal, follower.noticed
    return sender


def rhythm_of(settings: Settings) -> SyncSettings:
    """Return the rhythm in which a node follows."""
    return SyncSettings(max_stale=settings.node.max_stale, report_seconds=_REPORT_SECONDS)


def node_rules(settings: Settings, order: NodeOrder) -> NodeRules:
    """Return what records may do here: of others', so nothing that is not listed."""
    rules = settings.rules()
    private = (*rules.private, *order.private)
    return replace(rules, private=private, closed_to_others=not order.own_records)


@asynccontextmanager
async def _last_words(source: RpcSource) -> AsyncGenerator[None, None]:
    """Say goodbye to the control plane while there is still a connection to it."""
    try:
        yield
    finally:
        with suppress(BasculeError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await source.leave()


async def _serve(settings: Settings, parts: NodeParts, announce: Announced, orders: Orders) -> None:
    app = guarded_node(settings, parts, node_routes(parts))
    parts.doors.guests.app = app
    listener = listening(app, settings.server, orders)
    async with noticed(listener, parts.doors.bridge) as server:
        with published(parts.data, server.url):
            announce(server.url, parts.standing())
            say(logger, logging.INFO, f"serving at {server.url}", data_dir=str(parts.data))
            await orders.stop.wait()
            parts.let_go()
            say(logger, logging.INFO, "stopping: no new requests, calls under way may end")


def guarded_node(
    settings: Settings, parts: NodeParts, routes: Sequence[GuardedRoute]
) -> GuardedApp:
    """Return routes of a node behind the guard."""
    metrics = parts.doors.bridge.metrics

    def turned_away(event: AccessRefused) -> None:
        metrics.turned_away(event.code)
        say_refused(event)

    return GuardedApp(
        routes,
        parts.tokens,
        GuardRules(hosts=(*LOOPBACK_HOSTS, *settings.server.names)),
        on_refused=turned_away,
    )


def node_routes(parts: NodeParts) -> list[GuardedRoute]:
    """Return every route of a node."""
    data = parts.owned
    return [
        *parts.doors.routes(
            parts.tokens.key_for,
            approvals=parts.holds.approvals,
            parked=parts.holds.parked,
            serves=["approvals"],
        ),
        *own_routes(data, parts.follower, parts.standing, parts.sender),
        *instance_routes(data),
        *health_routes(
            parts.health, parts.doors.bridge.metrics, parts.unready, asked_by_owner(data)
        ),
    ]
