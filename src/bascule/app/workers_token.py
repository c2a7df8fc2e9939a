"""Who the workers of a control plane's own process are to it: one token, in memory alone."""

from __future__ import annotations

import secrets
from hmac import compare_digest

from bascule.auth.identity import Principal

_BYTES = 32
_ID = "workers"


class WorkersToken:
    """Knows one token, made anew at every start, and nobody else's (``Recaller``)."""

    def __init__(self, node: str) -> None:
        self.token = secrets.token_urlsafe(_BYTES)
        self._principal = Principal(name=node, role="node", task_id=None, token_id=_ID)

    def recall(self, token: bytes) -> Principal | None:
        """Return whose it is."""
        return self._principal if compare_digest(token, self.token.encode()) else None

    async def still(self, token: str) -> Principal | None:
        """Return the same: it is valid for as long as the process runs."""
        return self.recall(token.encode("utf-8", "replace"))

    def state(self) -> object:
        """Return what never changes."""
        return self._principal
