"""What a node has of its control plane, and what of its own instead.

Secrets are given from there. The ledger is the node's own, and is sent there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bascule.app.logs import hide
from bascule.app.settings import Settings
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.client.rpc import RpcSource
from bascule.client.secrets import RpcSecrets
from bascule.node.far_secrets import FarSecrets


def far_secrets(source: RpcSource) -> FarSecrets:
    """Return the secrets of the control plane; no line of the log shows one."""
    secrets = FarSecrets(RpcSecrets(source))
    source.on_secrets = secrets.hear
    hide(lambda: secrets.known_values)
    return secrets


@asynccontextmanager
async def own_ledger(settings: Settings, key: bytes) -> AsyncGenerator[SqliteLedger | None, None]:
    """Open the ledger of the node's data directory, if one is wanted; ``key`` is its journal's."""
    if not settings.ledger.enabled:
        yield None
        return
    kept = SqliteLedger(Path(settings.data_dir), key=key, settings=settings.ledger)
    await kept.open()
    try:
        yield kept
    finally:
        await kept.close()
