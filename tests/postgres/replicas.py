"""Processes of ``bascule`` that share a database, each in a data directory of its own."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.flow.up_process import Up, serving_by
from tests.postgres.databases import database


class Replicas:
    """Makes replicas on one database under one key; all of them end with it."""

    def __init__(self, folder: Path, dsn: str, stack: AsyncExitStack) -> None:
        self.dsn = dsn
        names = ("BASCULE_SERVER_KEY", "BASCULE_SECRETS_KEY")
        self.env = {name: base64.b64encode(secrets.token_bytes(32)).decode() for name in names}
        self._folder = folder
        self._stack = stack

    async def start(
        self, name: str, *words: str, command: tuple[str, ...] = ("up",), **env: str
    ) -> Up:
        """Start one, in the data directory of its name."""
        given = {**self.env, "BASCULE_DSN": self.dsn, "BASCULE_REPLICA": name, **env}
        starting = serving_by(command, self._folder / name, *words, **given)
        return await self._stack.enter_async_context(starting)


@asynccontextmanager
async def replicas(folder: Path, dsn: str | None = None) -> AsyncGenerator[Replicas]:
    """Return a maker of replicas, on an empty database unless one is given."""
    async with AsyncExitStack() as stack:
        if dsn is None:
            dsn = await stack.enter_async_context(database())
        yield Replicas(folder, dsn, stack)
