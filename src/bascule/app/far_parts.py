"""What a node has of its control plane, and what of its own instead.

Secrets are given from there. The ledger is the node's own, and is sent there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bascule.app.logs import hide
from bascule.app.settings import Settings
from bascule.audit.ledger import arguments_key
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.client.rpc import RpcSource
from bascule.client.secrets import RpcSecrets
from bascule.db.private_files import private_key
from bascule.node.far_secrets import FarSecrets

KEY_BYTES = 32


def far_secrets(source: RpcSource) -> FarSecrets:
    """Return the secrets of the control plane; no line of the log shows one."""
    secrets = FarSecrets(RpcSecrets(source))
    source.on_secrets = secrets.hear
    hide(lambda: secrets.known_values)
    return secrets


@asynccontextmanager
async def own_ledger(
    settings: Settings, key: bytes, crew: Path | None
) -> AsyncGenerator[SqliteLedger | None, None]:
    """Open the ledger of the node's data directory, if one is wanted; ``key`` is its journal's.

    ``crew`` has the key by which all workers of a node digest arguments alike: a question that one
    of them asked is the same at the others.
    """
    if not settings.ledger.enabled:
        yield None
        return
    kept = SqliteLedger(Path(settings.data_dir), key=key, settings=settings.ledger)
    if crew is not None:
        kept.digest_key = arguments_key(await asyncio.to_thread(private_key, crew, KEY_BYTES))
    await kept.open()
    try:
        yield kept
    finally:
        await kept.close()
