"""Replicas for tests: each with a data directory and connections of its own, on one database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict, Unpack

from bascule.auth.postgres_token_store import open_shared_tokens
from bascule.auth.server_key import KEY_NAME
from bascule.auth.tokens import Note, Tokens
from bascule.clock import Clock
from bascule.db.postgres import SECONDS, Postgres
from bascule.db.private_files import write_private
from tests.asgi.caller import KEY


class Options(TypedDict, total=False):
    """How the tokens of a replica are opened."""

    clock: Clock
    note: Note | None
    follow: bool


@asynccontextmanager
async def reached(
    dsn: str, *, listen_dsn: str | None = None, seconds: float = SECONDS
) -> AsyncGenerator[Postgres, None]:
    """Connections of one replica."""
    postgres = await Postgres(dsn, listen_dsn=listen_dsn, seconds=seconds).open()
    try:
        yield postgres
    finally:
        await postgres.close()


@asynccontextmanager
async def replica(
    dsn: str, folder: Path, *, key: bytes | None = KEY, **options: Unpack[Options]
) -> AsyncGenerator[Tokens, None]:
    """The tokens of one replica, whose key is in its folder."""
    if key is not None:
        write_private(folder / KEY_NAME, key)
    async with (
        reached(dsn) as postgres,
        open_shared_tokens(postgres, folder, **options) as tokens,
    ):
        yield tokens
