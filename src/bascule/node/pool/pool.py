"""The pool: every connection of a node, by server, within the node's limits.

It follows registry snapshots: what is removed is closed, what changed its transport is restarted,
the rest is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial

from msgspec.structs import replace

from bascule.audit.metrics import Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, NotDelivered, OutcomeUnknown, ServerUnavailable
from bascule.lifetime import Tasks
from bascule.model.json import JsonObject
from bascule.model.platform import PlatformRecord
from bascule.model.sandbox import InForce
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.status import Change, ServerStatus
from bascule.model.task import TaskRecord
from bascule.model.tool import ToolDescriptor
from bascule.node.pool.connection import Connection
from bascule.node.pool.idle_status import Resting
from bascule.node.pool.inspection import ServerInspection, inspect
from bascule.node.pool.opener import Opener
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.turns import Turns, shared_turns
from bascule.node.ports import InputHandler, Listing, Outgoing, Route
from bascule.node.settings import NodeSettings
from bascule.node.sharing import (
    NOBODY,
    SHARED,
    Belonging,
    Sharer,
    foreseen,
    keys_of,
    sharer_of,
)
from bascule.node.trial_steps import TrialSteps
from bascule.policy.isolation import governed, governed_servers
from bascule.wire.api.trials import Missed

#: A server, and who shares the connection to it.
Key = tuple[str, str]


class Pool:
    """All connections of one node."""

    def __init__(
        self,
        opener: Opener,
        *,
        settings: NodeSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        snapshot: Snapshot | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._opener = opener
        self._settings = settings or NodeSettings()
        self._clock = clock
        self._metrics = metrics or Metrics()
        #: Known from the start where there is a snapshot, so that a bridge serves unstarted too.
        self._records = governed_servers(snapshot.servers, snapshot.platform) if snapshot else {}
        self._resting = Resting(self._records)
        self._connections: dict[Key, Connection] = {}
        self._turns = turns
        self._inputs: dict[str, InputHandler] = {}
        self._whose: dict[str, Belonging] = {}
        self._sharers: dict[Key, Sharer] = {}
        self._platform = snapshot.platform if snapshot else PlatformRecord()
        self._closing: dict[Key, set[asyncio.Task[None]]] = {}
        self._applying = asyncio.Lock()
        self._warming = Tasks()
        self._trials: set[Connection] = set()
        #: Grows whenever any tool list changes; sessions compare it before a call.
        self.epoch = 0
        #: Told at once of every change; it must neither wait nor fail.
        self.on_change: Callable[[Change], None] = _ignore
        #: The credentials that references gave so far; nobody is ever shown them.
        self.known_values: frozenset[str] = opener.known_values
        #: Everything that references gave so far; it is never written down.
        self.reference_values: frozenset[str] = opener.reference_values
        opener.reap = self._reap_one
        opener.on_values = self._note_values

    async def apply(self, snapshot: Snapshot) -> None:
        """Follow the registry: close what is gone, restart what moved, warm what asks for it."""
        async with self._applying:
            records = governed_servers(snapshot.servers, snapshot.platform)
            stale = [key for key, c in self._connections.items() if _moved(c, records.get(key[0]))]
            closing = [self._drop(key) for key in stale]
            self._records, self._platform = records, snapshot.platform
            for (server_id, _), connection in self._connections.items():
                connection.record = records[server_id]
            await _all(closing)
            self._prewarm(snapshot.tasks)

    async def isolation(self) -> dict[InForce, str]:
        """Try each level of isolation, best first; say why one does not work, "" if it does."""
        return await self._opener.isolation()

    async def shortfall(self) -> str:
        """Say why servers can have nothing more than limits here; "" if they can."""
        return await self._opener.shortfall()

    def sweep_homes(self) -> None:
        """Begin to remove what servers left in HOMEs that nobody uses any more."""
        self._opener.sweep()

    async def listing(self, server_id: str, session_id: str, *, patient: bool = True) -> Listing:
        """Return a server's tools as a session sees them."""
        return await self._connection(server_id, session_id).listing(patient=patient)

    def fresh(self, server_id: str, session_id: str) -> Listing | None:
        """Return a server's tools if they are known and up to date."""
        record = self._records.get(server_id)
        if record is None or not record.enabled:
            return None
        return self._connection(server_id, session_id).catalogue.fresh

    def progress(self, server_id: str, session_id: str) -> str | None:
        """Return where a start stands that a session waits for."""
        record = self._records.get(server_id)
        if record is None:
            return None
        connection = self._connections.get((server_id, self._sharer(record, session_id).key))
        return None if connection is None else connection.status().starting

    def way(self, route: Route) -> Connection | None:
        """Return the connection that a call may leave over at once, if there is one."""
        connection = self._connection(route.server_id, route.session_id)
        watch = connection.watch
        return connection if watch is not None and watch.admits(route.whose) else None

    async def connect(self, route: Route, until: float | None) -> None:
        """Wait until a call may leave: the server is connected, and not in doubt."""
        connection = self._connection(route.server_id, route.session_id)
        await connection.client(until, whose=route.whose)

    async def send(self, call: Outgoing) -> JsonObject:
        """Call a tool once there is a way, and decide on it again after every wait for one."""
        route = call.route
        until = call.until  # a start may outlast a call, and goes on without it
        if until is None:
            until = asyncio.get_running_loop().time() + call.timeout
        while (way := self.way(route)) is None:
            await self.connect(route, until)
            if call.decide is not None:
                await call.decide()
        return await way.send(call)

    async def send_again(
        self, call: Outgoing, error: NotDelivered | OutcomeUnknown, left: float
    ) -> JsonObject:
        """Send a call a second time, and for the last; the deadline stands.

        Only what provably was not delivered, or does no harm twice.
        """
        if left <= 0 or not (call.route.again or isinstance(error, NotDelivered)):
            raise error
        await self._clock.sleep(0)  # a broken pipe is seen as a loss in the loop's next turn
        if call.decide is not None:
            await call.decide()
        return await self.send(replace(call, timeout=left, last=True))

    def introduce(self, session_id: str, whose: Belonging) -> None:
        """Say whose a session is, before anything is asked for it."""
        self._whose[session_id] = whose

    def offer(self, session_id: str, inputs: InputHandler) -> None:
        """Give a session connections of its own, whose servers may ask for these inputs."""
        self._inputs[session_id] = inputs

    async def release(self, session_id: str) -> None:
        """Close what belonged to one session alone, and forget whose it was."""
        self._inputs.pop(session_id, None)
        self._whose.pop(session_id, None)
        own = [key for key in self._connections if key[1] == session_id and session_id]
        await _all([self._drop(key) for key in own])

    async def reconnect(self, server_id: str) -> None:
        """Tear down a server's connections and connect once more; raise what goes wrong."""
        open_now = [c for key, c in self._connections.items() if key[0] == server_id]
        found = open_now or [self._connection(server_id, SHARED)]
        await asyncio.gather(*(connection.reconnect() for connection in found))

    def renew_secret(self, name: str) -> None:
        """Let every connection that asked for a secret ask anew, at once.

        New calls go over new connections; those under way end on the old ones.
        """
        for connection in list(self._connections.values()):
            if name in connection.secrets_read:
                connection.renew()

    async def inspect(
        self, server_id: str, *, afresh: bool = False, steps: TrialSteps | None = None
    ) -> ServerInspection:
        """Look closely at one server, on its shared connection."""
        return await inspect(self._connection(server_id, SHARED), afresh=afresh, steps=steps)

    async def try_out(
        self, record: ServerRecord, steps: TrialSteps, said: Callable[[str], None]
    ) -> ServerInspection:
        """Look closely at a server that is none of ours, on a connection that ends with this.

        ``said`` is told what it said outside the protocol. It has no HOME that is kept.
        """
        connection = self._apart(governed(replace(record, sharing="session"), self._platform))
        self._trials.add(connection)
        try:
            return await inspect(connection, steps=steps)
        finally:
            closing = asyncio.ensure_future(connection.close())
            try:
                await _seen_out(closing)
            finally:
                self._trials.discard(connection)
                said(connection.starter.said())

    async def missed(self, record: ServerRecord, said: str) -> tuple[Missed, ...]:
        """Say what a server seems to have missed in its sandbox, by what it said."""
        return await self._opener.missed(governed(record, self._platform), said)

    def said(self, server_id: str) -> str:
        """Return the last that a server said outside the protocol, where it was used last."""
        found = [c for key, c in self._connections.items() if key[0] == server_id]
        return max(found, key=lambda one: one.last_used).starter.said() if found else ""

    def known_tools(self) -> dict[str, tuple[ToolDescriptor, ...]]:
        """Return what each server listed last, where it was listed at all."""
        known = ((key[0], c.catalogue.listing) for key, c in self._connections.items())
        return {server: listing.tools for server, listing in known if listing is not None}

    def statuses(self) -> list[ServerStatus]:
        """Return the status of every record, connected or not, by server."""
        if self._resting.records is not self._records:
            self._resting = Resting(self._records)
        return self._resting.beside(
            replace(connection.status(), sharer=key[1]) if key[1] else connection.status()
            for key, connection in self._connections.items()
        )

    async def close(self) -> None:
        """End every connection and process; nothing is opened any more."""
        self._records = {}
        await self._warming.end()
        for key in list(self._connections):
            self._drop(key)
        await asyncio.gather(*(trial.close() for trial in self._trials))
        await _all([task for tasks in self._closing.values() for task in tasks])
        await self._opener.close()

    def _connection(self, server_id: str, session_id: str) -> Connection:
        record = self._records.get(server_id)
        if record is None or not record.enabled:
            what = f"no server {server_id!r} is registered"
            raise ServerUnavailable(what if record is None else f"server {server_id!r} is disabled")
        sharer = self._sharer(record, session_id)
        connection = self._connections.get((server_id, sharer.key)) or self._made(record, sharer)
        if connection.watch is None:
            connection.wanted_by(session_id)
        return connection

    def _sharer(self, record: ServerRecord, session_id: str) -> Sharer:
        whose = self._whose.get(session_id, NOBODY)
        return sharer_of(record, session_id, whose, alone=session_id in self._inputs)

    def _made(self, record: ServerRecord, sharer: Sharer) -> Connection:
        self._turns = self._turns or shared_turns()
        key = (record.server_id, sharer.key)
        if sharer.key:
            self._forget_unused()
        self._sharers[key] = sharer
        self._connections[key] = connection = Connection(
            record,
            partial(self._open, sharer),
            self._settings,
            self._clock,
            self._metrics,
            on_change=partial(self._listed, key),
            announce=partial(self._announce, key),
            sender=self,
            inputs=self._inputs.get(key[1]),
            turns=self._turns,
        )
        return connection

    def _forget_unused(self) -> None:
        """Forget connections that ended of tasks and people who have no session open."""
        used = {key for session, whose in self._whose.items() for key in keys_of(session, whose)}
        ended = [
            key
            for key, connection in self._connections.items()
            if key[1] and key[1] not in used and not self._sharers[key].alone and _ended(connection)
        ]
        for key in ended:
            self._drop(key)

    async def _open(self, sharer: Sharer, record: ServerRecord, events: Events) -> Channel:
        """Open a channel, once the processes that this one takes the place of are gone."""
        await _all(list(self._closing.get((record.server_id, sharer.key), ())))
        events.logs.own = sharer.alone
        return await self._opener.open(record, events, sharer)

    def _apart(self, record: ServerRecord) -> Connection:
        """Return a connection that neither statuses nor lists know of."""
        self._turns = self._turns or shared_turns()
        return Connection(
            record,
            self._opener.open,
            self._settings,
            self._clock,
            Metrics(),
            on_change=lambda: 0,
            turns=self._turns,
        )

    def _note_values(self, known: frozenset[str], read: frozenset[str]) -> None:
        self.known_values, self.reference_values = known, read

    def _listed(self, key: Key) -> int:
        """Note that a server's tools are others than before; return the new epoch."""
        self.epoch += 1
        self.on_change(Change(kind="tools", server_id=key[0], session_id=key[1]))
        return self.epoch

    def _announce(self, key: Key, change: Change) -> None:
        self.on_change(replace(change, session_id=key[1]) if key[1] else change)

    def _drop(self, key: Key) -> asyncio.Task[None]:
        """Forget a connection at once; give the task that closes it."""
        self._sharers.pop(key, None)
        task = asyncio.get_running_loop().create_task(self._connections.pop(key).close())
        closing = self._closing.setdefault(key, set())
        closing.add(task)
        task.add_done_callback(partial(self._dropped, key))
        return task

    def _dropped(self, key: Key, task: asyncio.Task[None]) -> None:
        self._listed(key)
        closing = self._closing[key]
        closing.discard(task)
        if not closing:
            del self._closing[key]

    def _prewarm(self, tasks: Mapping[str, TaskRecord]) -> None:
        """Connect what asks for it and is not known yet, for everybody who can be foreseen."""
        wanted = [record for record in self._records.values() if record.prewarm and record.enabled]
        for record in wanted:
            for sharer in foreseen(record, tasks):
                if (record.server_id, sharer.key) not in self._connections:
                    self._warming.start(self._warm(self._made(record, sharer)))

    async def _warm(self, connection: Connection) -> None:
        try:
            await connection.listing()
        except BasculeError:
            return  # its status says why; the first caller is told as well

    async def _reap_one(self, task: str | None = None) -> bool:
        """Make room for one process, of a task's: close what has been idle for longest."""
        local = [
            connection
            for key, connection in self._connections.items()
            if connection.record.transport == "stdio"
            and (task is None or self._sharers[key].task == task)
        ]
        idle = [one for one in local if one.watch is not None and not one.in_flight]
        if not idle:
            return False
        await min(idle, key=lambda connection: connection.last_used).disconnect()
        return True


def _ignore(_change: Change) -> None:
    """Tell nobody."""


def _ended(connection: Connection) -> bool:
    """Say whether a connection was made once, and rests now."""
    status = connection.status()
    return status.last_connected_at is not None and status.state == "disconnected"


def _moved(connection: Connection, record: ServerRecord | None) -> bool:
    """Say whether a connection no longer fits its record."""
    if record is None or not record.enabled:
        return True
    old = connection.record
    return (old.connection(), old.sharing, old.tool_namespace) != (
        record.connection(),
        record.sharing,
        record.tool_namespace,
    )


async def _seen_out(closing: asyncio.Future[None]) -> None:
    """Wait for a process to be gone, even if the one who waits is cancelled once more."""
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait({closing})
        raise


async def _all(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait for tasks that go on when the one who waits is cancelled."""
    if tasks:
        await asyncio.wait(tasks)
