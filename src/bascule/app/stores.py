"""What a process keeps, opened in order: tokens, the ledger, the registry and its files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bascule.app.backends import publish_backends
from bascule.app.backing import Backing, open_backing
from bascule.app.data_dir import served_alone
from bascule.app.demo_task import DemoTask
from bascule.app.local_node import NODE_NAME
from bascule.app.reload import Reloading
from bascule.app.settings import Settings
from bascule.audit.approvals import Approvals, LedgerStore, MemoryStore
from bascule.audit.journaled_ledger import JournaledLedger
from bascule.audit.ledger import MemoryLedger
from bascule.audit.log_lines import LoggedLedger
from bascule.audit.parked_turns import LedgerTurns, MemoryTurns, ParkedTurns
from bascule.auth.tokens import Tokens
from bascule.clock import SYSTEM_CLOCK
from bascule.control.envelope import OuterKey
from bascule.control.registry.service import RegistryService
from bascule.control.secrets import Secrets
from bascule.control.work.channel import WorkChannel
from bascule.model.task import TaskRecord

if TYPE_CHECKING:
    from bascule.db.postgres import Postgres


class Demo(Struct, frozen=True):
    """The bundled demo: its task, and its server, or ``empty``: neither.

    ``write`` is given the data directory and returns a folder of records besides one's own.
    """

    task: TaskRecord
    write: Callable[[Path], Path | None]
    empty: bool = False


@dataclass(frozen=True, kw_only=True)
class Stores:
    """What the parts of a process are made over."""

    service: RegistryService
    files: Reloading
    tokens: Tokens
    secrets: Secrets | None = None
    ledger: LoggedLedger | None = None
    #: The ledger on disk, if there is one.
    kept: JournaledLedger | None = None
    approvals: Approvals | None = None
    #: The PostgreSQL that this process shares with others, if it does.
    shared: Postgres | None = None
    #: The name under which its node reports.
    node: str = NODE_NAME
    #: Turns that wait for approval; in memory at the chat door where there is none.
    parked: ParkedTurns | None = None
    #: How nodes of other processes are asked.
    works: WorkChannel | None = None

    def say_acts(self) -> None:
        """Have the log say what somebody does from now on; what a start does is in the ledger."""
        if self.ledger is not None:
            self.tokens.note = self.service.note = self.ledger.note


@asynccontextmanager
async def open_stores(
    settings: Settings,
    demo: Demo | None,
    problems: Callable[[Sequence[str]], None],
    *,
    new_registry: bool = False,
    secrets_key: OuterKey | None = None,
) -> AsyncGenerator[Stores, None]:
    """Open what the settings name, and read the records into the registry."""
    data = Path(settings.data_dir)
    async with AsyncExitStack() as stack:
        opened = stack.enter_async_context
        backing = await opened(open_backing(settings, new_registry=new_registry))
        tokens = await opened(backing.tokens())
        stack.enter_context(served_alone(data))
        tokens.process = backing.process or tokens.process
        kept = await opened(open_ledger(settings, backing, tokens.key_for("journal")))
        quiet = kept or MemoryLedger(limit=0)
        ledger = LoggedLedger(quiet, slow_call_ms=settings.log.slow_call_ms)
        tokens.note = quiet.note
        service = await opened(backing.registry(tokens, new=new_registry))
        service.note = quiet.note
        works = await opened(WorkChannel(await backing.works(), service, SYSTEM_CLOCK))
        if backing.shared is not None:
            demo = None  # it is for one who tries things out
        folder = None if demo is None else await asyncio.to_thread(demo.write, data)
        task = None if demo is None else DemoTask(demo.task, data, empty=demo.empty)
        secrets = await opened(backing.secrets(secrets_key, ledger.note, service.snapshot))
        approvals = await opened(open_approvals(settings, kept, secrets))
        files = Reloading(service, settings, folder, problems)
        closed = settings.node.closed()
        if closed is not None:
            problems([closed])
        published = await publish_backends(service, settings.backends)
        if published.problems:
            problems(published.problems)
        if task is not None:
            await task.adopt(service)
        await files.start()
        if task is not None:
            await task.make(service)
        yield Stores(
            service=service,
            files=files,
            tokens=tokens,
            secrets=secrets,
            ledger=ledger,
            kept=kept,
            approvals=approvals,
            shared=backing.shared,
            node=backing.node,
            parked=parked_turns(settings, kept, secrets),
            works=works,
        )


@asynccontextmanager
async def open_ledger(
    settings: Settings, backing: Backing, key: bytes
) -> AsyncGenerator[JournaledLedger | None, None]:
    """Keep what happens in the ledger, if that is wanted; ``key`` is that of its journal."""
    if not settings.ledger.enabled:
        yield None
        return
    kept = await backing.ledger(key).open()
    try:
        yield kept
    finally:
        await kept.close()


def parked_turns(
    settings: Settings, ledger: JournaledLedger | None, secrets: Secrets
) -> ParkedTurns:
    """Keep turns beside the approvals that they wait for."""
    grace = float(settings.approvals.claim_seconds)
    if ledger is None:
        return MemoryTurns(grace=grace)
    return LedgerTurns(ledger, secrets.sealer(), grace=grace)


@asynccontextmanager
async def open_approvals(
    settings: Settings, ledger: JournaledLedger | None, secrets: Secrets
) -> AsyncGenerator[Approvals, None]:
    """Keep approvals in the ledger's database; without a ledger, for the life of the process."""
    store = MemoryStore() if ledger is None else LedgerStore(ledger, secrets.sealer())
    if isinstance(store, LedgerStore):
        await store.open()
    approvals = Approvals(store, settings.approvals)
    try:
        yield approvals
    finally:
        await approvals.close()
        if isinstance(store, LedgerStore):
            store.close()
