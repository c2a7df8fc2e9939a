"""What whoever owns a data directory does without a token, whether or not a process serves it.

Its tokens, secrets, records and ledger are in files of the directory, or in the PostgreSQL that the
settings name or the directory knows. Most commands need little of it, so each part is imported when
it is used.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.app.data_dir import STORE_FILE, process_mark, replica_name
from bascule.app.lost_registry import is_fresh, note_unstarted, refuse_unfinished
from bascule.app.settings import Settings
from bascule.app.shared_registry import shared_postgres, with_shared
from bascule.auth.token_store import FILE_NAME, open_tokens
from bascule.auth.tokens import Note, Tokens
from bascule.model.snapshot import Snapshot

if TYPE_CHECKING:
    from bascule.audit.events import Act
    from bascule.control.envelope import OuterKey
    from bascule.control.secrets import Secrets


def has_tokens(settings: Settings) -> bool:
    """Say whether there may be tokens to open."""
    known = with_shared(settings)
    return known.store.dsn is not None or (Path(settings.data_dir) / FILE_NAME).exists()


@asynccontextmanager
async def owner_tokens(
    settings: Settings, *, note: Note | None = None, first: bool = False
) -> AsyncGenerator[Tokens, None]:
    """Open the tokens; ``first`` is for whoever makes some, perhaps before any start."""
    data = Path(settings.data_dir)
    async with shared_postgres(settings) as postgres:
        if postgres is not None:
            from bascule.auth.postgres_token_store import open_shared_tokens  # noqa: PLC0415

            async with open_shared_tokens(postgres, data, note=note, follow=False) as tokens:
                yield tokens
            return
    refuse_unfinished(data)
    fresh = first and is_fresh(data)
    async with open_tokens(data, note=note) as tokens:
        tokens.process = process_mark(data) or tokens.process
        if fresh:
            note_unstarted(data)
        yield tokens


async def owner_records(settings: Settings) -> Snapshot | None:
    """Return every record of the registry as it stands; None if there is no registry yet."""
    path = Path(settings.data_dir)
    async with shared_postgres(settings) as postgres:
        if postgres is not None:
            from bascule.control.registry.postgres_store import PostgresStore  # noqa: PLC0415

            store = await PostgresStore(postgres).open()
            return (await store.view()).snapshot()
    if not (path / STORE_FILE).exists():
        return None
    from bascule.app.stored_records import stored_snapshot  # noqa: PLC0415

    return await stored_snapshot(path)


@asynccontextmanager
async def owner_secrets(
    settings: Settings, key: OuterKey | None, note: Note, records: Callable[[], Snapshot]
) -> AsyncGenerator[Secrets, None]:
    """Open the secrets."""
    data = Path(settings.data_dir)
    async with shared_postgres(settings) as postgres:
        if postgres is not None:
            from bascule.control.postgres_secret_store import open_shared_secrets  # noqa: PLC0415

            async with open_shared_secrets(
                postgres, data, key=key, note=note, records=records, follow=False
            ) as secrets:
                yield secrets
            return
    from bascule.control.secrets import open_secrets  # noqa: PLC0415

    async with open_secrets(data, key=key, note=note, records=records) as secrets:
        yield secrets


def owner_note(settings: Settings) -> Note | None:
    """Return what writes acts to the ledger, if one is kept."""
    return partial(_note, settings) if settings.ledger.enabled else None


async def _note(settings: Settings, act: Act) -> None:
    data = Path(settings.data_dir)
    async with shared_postgres(settings) as postgres:
        if postgres is not None:
            from bascule.audit.direct_shared import note_shared  # noqa: PLC0415

            node = settings.server.replica or replica_name(data)
            await note_shared(postgres, data, act, node=node)
            return
    from bascule.audit.direct import note_directly  # noqa: PLC0415

    await note_directly(data, act)
