"""The audit trail that a command's arguments lead to: of a running process, else of its file."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from bascule.app.shared_registry import shared_of
from bascule.audit.journal import FOLDER, is_live
from bascule.audit.ledger_file import FILE_NAME
from bascule.audit.search import LedgerFile, LedgerReader
from bascule.cli.command_line import typed
from bascule.cli.configuration import read_settings
from bascule.cli.endpoint import TOKEN_SECONDS, URL_VARIABLE, NotServing, reach, served_url
from bascule.cli.parser import TOKEN_VARIABLE
from bascule.client.audit import AuditClient
from bascule.errors import BasculeError
from bascule.model.role import Role
from bascule.wire.api.audit import AuditEntry, AuditFilters, AuditPage, CallLife

_PAGE = 1_000


class NothingThere(BasculeError):
    """There is no such ledger, or no such call in it."""

    code = "not_found"


class Trail(Protocol):
    """What a process and a file both answer."""

    async def search(self, filters: AuditFilters, before: int | None, limit: int) -> AuditPage: ...

    async def life(self, request_id: str) -> CallLife | None: ...

    def export(self, filters: AuditFilters) -> AsyncGenerator[bytes, None]: ...


@asynccontextmanager
async def trail_of(arguments: argparse.Namespace) -> AsyncGenerator[Trail]:
    """Return the trail of the process that serves, or of the file when none does."""
    if names_process(arguments) or is_served(data_of(arguments)):
        async with client_of(arguments, "viewer") as client:
            yield client
    else:
        with file_trail(ledger_of(arguments)) as reader:
            yield reader


@asynccontextmanager
async def client_of(
    arguments: argparse.Namespace, role: Role, *, seconds: float = TOKEN_SECONDS
) -> AsyncGenerator[AuditClient]:
    """Return the trail of the process; raise NotServing when there is none."""
    async with reach(arguments, role, seconds=seconds) as found, found.api() as api:
        yield AuditClient(api)


@contextmanager
def file_trail(path: Path) -> Generator[LedgerReader]:
    """Return the trail of a file; its journals are beside it, if anywhere."""
    file = LedgerFile(path)
    try:
        yield LedgerReader(file, partial(is_live, path.parent / FOLDER), tables=file.tables)
    finally:
        file.close()


def names_process(arguments: argparse.Namespace) -> bool:
    """Say whether somebody said which process to ask."""
    return bool(arguments.api_url or os.environ.get(URL_VARIABLE))


def data_of(arguments: argparse.Namespace) -> Path:
    """Return the data directory."""
    return Path(read_settings(arguments).data_dir)


def ledger_of(arguments: argparse.Namespace) -> Path:
    """Return the ledger of the data directory; raise NothingThere when it has none."""
    settings = read_settings(arguments)
    path = Path(settings.data_dir) / FILE_NAME
    if is_shared(arguments):
        raise NothingThere(
            f"the ledger is in PostgreSQL, and nothing serves {settings.data_dir}: start a replica "
            f"with {typed('up', arguments)} (or {typed('registry serve', arguments)}), or ask one "
            f"that runs: --api-url URL, and its token in {TOKEN_VARIABLE}"
        )
    if not path.exists():
        raise NothingThere(f"{path} does not exist; it is made by: {typed('up', arguments)}")
    return path


def is_shared(arguments: argparse.Namespace) -> bool:
    """Say whether the ledger is in a PostgreSQL that replicas share."""
    settings = read_settings(arguments)
    return settings.store.dsn is not None or shared_of(Path(settings.data_dir)) is not None


def asks_process(arguments: argparse.Namespace) -> bool:
    """Say whether a process has to be asked, and one may be there: no file has all of it."""
    if names_process(arguments):
        return True
    return is_shared(arguments) and is_served(data_of(arguments))


def is_served(data: Path) -> bool:
    """Say whether a process serves a data directory."""
    with suppress(NotServing):
        return bool(served_url(data))
    return False


async def newest(trail: Trail, filters: AuditFilters, before: int | None, limit: int) -> AuditPage:
    """Return so many entries, in as many pages as that takes."""
    found: list[AuditEntry] = []
    while True:
        page = await trail.search(filters, before, min(limit - len(found), _PAGE))
        found += page.entries
        before = page.next_before
        if before is None or len(found) >= limit:
            return AuditPage(entries=tuple(found), tip=page.tip, next_before=before)
