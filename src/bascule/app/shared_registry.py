"""A data directory whose registry is in PostgreSQL says so, for whoever opens it next.

Without it, a start that forgets the DSN would begin with an empty registry, and a command would
make tokens that no process knows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.app.lost_registry import RegistryLost, has_registry
from bascule.app.settings import Settings
from bascule.db.dsn import has_password, postgres_at
from bascule.db.private_files import write_private

if TYPE_CHECKING:
    from bascule.db.postgres import Postgres

FILE_NAME = "shared-registry"
HOW_TO_NAME = "give BASCULE_DSN, store.dsn or --dsn"


class SharedRegistry(Struct, frozen=True):
    """Where the registry of a directory is, in words and, if nothing in it is secret, as a DSN."""

    where: str
    store_id: str
    dsn: str | None = None
    listen_dsn: str | None = None


def note_shared(settings: Settings, where: str, store_id: str) -> None:
    """Note where the registry of a data directory is from now on."""
    store = settings.store
    dsns = (store.dsn, store.listen_dsn)
    secret = any(dsn is not None and has_password(dsn) for dsn in dsns)
    noted = SharedRegistry(where, store_id, *((None, None) if secret else dsns))
    write_private(Path(settings.data_dir) / FILE_NAME, msgspec.json.encode(noted) + b"\n")


def shared_of(data: Path) -> SharedRegistry | None:
    """Return what a directory says about its registry; None if it is not shared."""
    try:
        text = (data / FILE_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(text, type=SharedRegistry)
    except msgspec.DecodeError as error:
        raise RegistryLost(f"{data / FILE_NAME} cannot be read: {error}; {HOW_TO_NAME}") from error


def forget_shared(data: Path) -> None:
    """Note that the registry of a directory is its own from now on."""
    (data / FILE_NAME).unlink(missing_ok=True)


def with_shared(settings: Settings) -> Settings:
    """Return settings with the DSN that the data directory knows, unless they name one.

    Raise RegistryLost where the directory knows that there is one, and not which.
    """
    found = None if settings.store.dsn is not None else shared_of(Path(settings.data_dir))
    if found is None:
        return settings
    if found.dsn is None:
        raise RegistryLost(
            f"what {settings.data_dir} serves is in {found.where}, whose password is not kept: "
            "give BASCULE_DSN, or store.dsn in bascule.toml"
        )
    return replace(
        settings, store=replace(settings.store, dsn=found.dsn, listen_dsn=found.listen_dsn)
    )


@asynccontextmanager
async def shared_postgres(settings: Settings) -> AsyncGenerator[Postgres | None, None]:
    """Open the PostgreSQL that the settings name or the directory knows; None where neither does.

    Raise StoreUnavailable where it cannot be reached.
    """
    store = with_shared(settings).store
    if store.dsn is None:
        yield None
        return
    postgres = await postgres_at(store.dsn, listen_dsn=store.listen_dsn).open()
    try:
        yield postgres
    finally:
        await postgres.close()


def refuse_local(data: Path) -> None:
    """Raise RegistryLost where a start would leave a shared registry for an empty one."""
    found = shared_of(data)
    if found is not None:
        raise RegistryLost(
            f"the registry of {data} is in {found.where}: {HOW_TO_NAME}; or give --new-registry "
            "to begin with an empty one in the directory"
        )


def refuse_lost_shared(data: Path, where: str, store_id: str, *, empty: bool) -> None:
    """Raise RegistryLost where a start would serve an empty registry in the place of another.

    That is the registry that it served before, if that is another now, or its own file.
    """
    before = shared_of(data)
    if not empty or (before is not None and before.store_id == store_id):
        return
    if before is not None:
        raise RegistryLost(
            f"{data} served the registry {before.store_id}, and the one in {where} is empty: put "
            "it back from a backup, or give --new-registry to begin with an empty one"
        )
    if has_registry(data):
        raise RegistryLost(
            f"{data} has a registry, and the one in {where} is empty: copy it with bascule "
            "registry copy, or give --new-registry to begin with an empty one"
        )
