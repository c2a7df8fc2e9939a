"""The composition of a node: ``Bridge``, the one place that joins the bridge to the pool."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self, TypeAlias, Unpack

from msgspec.structs import replace

from bascule.audit.events import ConnectionMoved, EgressDecided
from bascule.audit.ledger import Ledger, MemoryLedger
from bascule.audit.metrics import Metrics
from bascule.client.http import open_api
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import InvalidRecord
from bascule.files import scan_directory, scan_file
from bascule.lifetime import Lifetime
from bascule.model.keyword import refuse_unknown
from bascule.model.sandbox import InForce, Standing, at_least
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.status import Change, ServerStatus
from bascule.model.tool import ToolDescriptor
from bascule.node.blocking import BlockingBridge
from bascule.node.bridge.core import BridgeCore, CoreOptions
from bascule.node.bridge.known_tools import KnownTools
from bascule.node.connected_bridge import ConnectedBridge
from bascule.node.homes import Homes, user_homes
from bascule.node.leftovers import sweep_once
from bascule.node.pool.inspection import ServerInspection
from bascule.node.pool.opener import Opener
from bascule.node.pool.pool import Pool
from bascule.node.pool.process.warden import default_spawner
from bascule.node.pool.rehearsal import objection as objection
from bascule.node.ports import Approvals, Approver
from bascule.node.settings import NodeSettings
from bascule.node.trial_steps import TrialSteps
from bascule.outbound.forward_proxy import Passage
from bascule.outbound.references import SecretSource, resolver_of
from bascule.outbound.rules import NodeRules
from bascule.wire.api.trials import Missed
from bascule.wire.record_rules import namespace_conflicts
from bascule.wire.records import decode, encode

logger = logging.getLogger(__name__)
#: For records that come from elsewhere: nothing of this machine, until its owner says what.
REGISTRY_RULES = NodeRules(variables=(), executables=(), files=())
Records: TypeAlias = Iterable[ServerRecord] | Snapshot | str | Path


class BridgeOptions(CoreOptions, total=False):
    """The options of ``Bridge.open``, for those who pass them on."""

    ledger: Ledger | None
    rules: NodeRules | None
    environ: Mapping[str, str] | None
    secrets: SecretSource | None
    homes: str | Path | None


class Bridge(BridgeCore, Lifetime):
    """The governed way from sessions to tools, with its own connections.

    ``Bridge.open`` takes records, a directory or file of records, or a snapshot::

        async with Bridge.open([Server.stdio("time", "uvx", "mcp-server-time")]) as bridge:
            async with bridge.session(server_ids=["time"], caller="alice") as session:
                print(await session.call("mcp__time__get_current_time", {"timezone": "UTC"}))

    ``Bridge.connect`` is connected to a registry instead; ``Bridge.blocking`` and
    ``Bridge.connect_blocking`` are the same without async.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pool: Pool,
        ledger: Ledger,
        metrics: Metrics,
        **options: Unpack[CoreOptions],
    ) -> None:
        super().__init__(snapshot, pool, ledger, metrics, **options)
        self._pool = pool
        self._opened = False
        self._known_tools = KnownTools()
        self._warned = False
        pool.on_change = self._changed

    @classmethod
    def open(  # noqa: PLR0913 - options, all by keyword
        cls,
        records: Records,
        *,
        approver: Approver | Approvals | None = None,
        ledger: Ledger | None = None,
        settings: NodeSettings | None = None,
        rules: NodeRules | None = None,
        environ: Mapping[str, str] | None = None,
        secrets: SecretSource | None = None,
        clock: Clock = SYSTEM_CLOCK,
        environment: str | None = None,
        homes: str | Path | None = None,
    ) -> Self:
        """Return a bridge over these records; nothing is started before it is used.

        ``approver`` is asked about calls that need approval; or it is ``Approvals``, which keep.
        ``secrets`` are what ``secret://name`` means: a ``SecretResolver``, or values by name.
        ``homes`` is a folder for the HOMEs that servers keep from one start to the next; without
        one they are in the user's cache folder.
        """
        settings = settings or NodeSettings()
        metrics = Metrics()
        opener = Opener(
            default_spawner(clock=clock),
            rules=rules,
            environ=environ,
            secrets=resolver_of(secrets),
            max_processes=settings.max_processes,
            max_processes_per_task=settings.max_processes_per_task,
            clock=clock,
            homes=_kept_homes(homes, rules or NodeRules(), clock),
        )
        snapshot = read_records(records)
        pool = Pool(opener, settings=settings, clock=clock, metrics=metrics, snapshot=snapshot)
        bridge = cls(
            snapshot,
            pool,
            ledger or MemoryLedger(),
            metrics,
            approver=approver,
            clock=clock,
            settings=settings,
            environment=environment,
        )
        opener.on_passage = bridge._passed
        return bridge

    @classmethod
    def blocking(cls, records: Records, **options: Unpack[BridgeOptions]) -> BlockingBridge:
        """Return a bridge for programs without async; it takes what ``open`` takes."""
        return BlockingBridge(cls.open(records, **options))

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str,
        tls_ca: str | Path | None = None,
        insecure: bool = False,
        **options: Unpack[BridgeOptions],
    ) -> ConnectedBridge:
        """Return a bridge over a Bascule server; nothing is asked of it before it is used.

        A client's token gives sessions of its task, which are served there. A node's token makes
        this process a node that follows the registry; ``options`` are for that, and as the
        records are somebody else's, they may read and start nothing unless ``rules`` say so.
        ``tls_ca`` is a file of certificates to trust, ``insecure`` allows plain HTTP elsewhere.
        """
        refuse_unknown("connect", options, BridgeOptions.__annotations__)
        given: BridgeOptions = {"rules": REGISTRY_RULES, **options}
        api = open_api(
            url, token, tls_ca=None if tls_ca is None else str(tls_ca), insecure=insecure
        )
        return ConnectedBridge(
            api,
            lambda snapshot: cls.open(snapshot, **given),
            ledger=options.get("ledger"),
            clock=options.get("clock", SYSTEM_CLOCK),
        )

    @classmethod
    def connect_blocking(
        cls,
        url: str,
        *,
        token: str,
        tls_ca: str | Path | None = None,
        insecure: bool = False,
        **options: Unpack[BridgeOptions],
    ) -> BlockingBridge:
        """Return a connected bridge for programs without async."""
        bridge = cls.connect(url, token=token, tls_ca=tls_ca, insecure=insecure, **options)
        return BlockingBridge(bridge)

    async def start(self) -> None:
        """Begin to serve; servers with ``prewarm`` are connected in the background."""
        if not self._opened:
            self._opened = True
            sweep_once()
            self._pool.sweep_homes()
            await self._pool.apply(self.snapshot)

    async def apply(self, snapshot: Snapshot) -> None:
        """Follow a new snapshot: sessions decide by it at once, connections move after."""
        self.snapshot = snapshot
        self.changes.announce(Change(kind="records"))
        await self._pool.apply(snapshot)

    def renew_secret(self, name: str) -> None:
        """Have a secret's new value used, or the first one where there was none.

        Every call from now on goes over a connection that has read it anew; calls under way end
        on the connection they left by.
        """
        self._pool.renew_secret(name)

    async def inspect(
        self, server_id: str, *, afresh: bool = False, steps: TrialSteps | None = None
    ) -> ServerInspection:
        """Start a server if need be and say what it is, what it lists and how long that took.

        It lists every tool, allowed or not, and calls none; raise ServerUnavailable with the
        node's reason when it cannot. ``afresh`` asks the server itself, now, whatever is known;
        ``steps`` are told how far it comes.
        """
        return await self._pool.inspect(server_id, afresh=afresh, steps=steps)

    async def try_out(
        self, record: ServerRecord, steps: TrialSteps, said: Callable[[str], None]
    ) -> ServerInspection:
        """Inspect a server by a record that is not served; its process ends with this.

        ``said`` is told what it wrote to its standard error.
        """
        return await self._pool.try_out(record, steps, said)

    async def missed(self, record: ServerRecord, said: str) -> tuple[Missed, ...]:
        """Say what a server seems to have missed in its sandbox, by what it said; fit to be shown.

        It is a guess, for people: nothing is granted by it.
        """
        found = await self._pool.missed(record, said)
        shown = self.presentable_text
        return tuple(
            replace(one, value=shown(one.value), wanted=shown(one.wanted)) for one in found
        )

    async def isolation(self) -> dict[InForce, str]:
        """Try which levels of isolation servers can have here, best first.

        Each is exercised with a real process, once; the text says why one does not work, and is
        empty for one that does.
        """
        return await self._pool.isolation()

    async def tell_of_limits(self) -> None:
        """Say in the log, once, what servers can read if nothing but limits works here.

        The levels are tried, from the best to the first that keeps files from a server.
        """
        if why := await self._pool.shortfall():
            self._warn_of_limits(why)

    def said(self, server_id: str) -> str:
        """Return the last that a server wrote to its standard error, as it wrote it."""
        return self._pool.said(server_id)

    def known_tools(self) -> dict[str, tuple[ToolDescriptor, ...]]:
        """Return the tools of the servers that were listed lately, fit to be read by people.

        Nobody is asked. Those that are called like a credential are left out.
        """
        return self._known_tools.of(self._pool.known_tools(), self.scanner, self._writer)

    def statuses(self) -> list[ServerStatus]:
        """Return how every server's connection stands; its own words are fit to be shown."""
        return [
            status if status.last_error is status.starting is None else self._shown(status)
            for status in self._pool.statuses()
        ]

    def _shown(self, status: ServerStatus) -> ServerStatus:
        error, starting = status.last_error, status.starting
        return replace(
            status,
            last_error=None if error is None else self.presentable_text(error),
            starting=None if starting is None else self.presentable_text(starting),
        )

    async def close(self) -> None:
        """End every connection and process; nothing outlives the bridge."""
        try:
            await self._pool.close()
        finally:
            self.ledger.settle()

    def _passed(self, server_id: str, passage: Passage) -> None:
        """Write down where a confined server wanted to go."""
        self.ledger.egress_decided(
            EgressDecided(
                timestamp=self.clock.now(),
                server_id=server_id,
                verdict=passage.verdict,
                host=passage.host,
                port=passage.port,
                reason=passage.reason,
                bytes_sent=passage.bytes_sent,
                bytes_received=passage.bytes_received,
            )
        )

    def _changed(self, change: Change) -> None:
        """Write down where a connection stands, without what servers must not tell, and tell it."""
        if change.last_error is not None:
            change = replace(change, last_error=self.presentable_text(change.last_error))
        if change.old is not None and change.state is not None and change.old != change.state:
            self.ledger.connection_moved(
                ConnectionMoved(
                    timestamp=self.clock.now(),
                    server_id=change.server_id,
                    old_state=change.old,
                    state=change.state,
                    reason=change.reason,
                    last_error=change.last_error,
                )
            )
        self.changes.announce(change)
        if change.state == "connected" and not self._warned:
            self._look_at_limits(change.server_id)

    def _look_at_limits(self, server_id: str) -> None:
        for status in self._pool.statuses():
            found = status.sandbox
            if status.server_id == server_id and found is not None and _falls_short(found):
                self._warn_of_limits(found.why or "no level above limits works here")

    def _warn_of_limits(self, why: str) -> None:
        """Say, once, that servers which were to be isolated are not kept from our own files."""
        if not self._warned:
            self._warned = True
            logger.warning(
                "local servers have limits only, and can read what this process can, Bascule's "
                "keys among it: %s",
                why,
            )


def _falls_short(standing: Standing) -> bool:
    """Say whether a server sees files that it was to be kept from."""
    return at_least(standing.asked, "landlock") and not at_least(standing.in_force, "landlock")


def _kept_homes(folder: str | Path | None, rules: NodeRules, clock: Clock) -> Homes | None:
    limits = {"max_mb": rules.homes_max_mb, "max_days": rules.homes_max_days}
    if folder is None:
        return user_homes(os.environ, **limits, clock=clock)
    path = Path(folder).absolute()
    return Homes(path.parent, (path.name,), **limits, clock=clock)


def read_records(records: Records) -> Snapshot:
    """Return a snapshot of records from wherever they are; raise InvalidRecord if any is wrong."""
    if isinstance(records, Snapshot):
        return records
    if isinstance(records, str | Path):
        if not Path(records).exists():
            raise InvalidRecord([f"there is no file or directory {str(records)!r}"])
        scan = scan_directory(records) if Path(records).is_dir() else scan_file(records)
        scan.refuse_broken()
        return scan.snapshot()
    servers: dict[str, ServerRecord] = {}
    for record in records:
        if record.server_id in servers:
            raise InvalidRecord([f"server {record.server_id!r} is given twice"])
        servers[record.server_id] = decode(ServerRecord, encode(record))[0]
    conflicts = namespace_conflicts(servers.values())
    if conflicts:
        raise InvalidRecord(conflicts)
    return Snapshot(store_id="memory", revision=1, servers=servers)
