"""The audit trail of a Bascule server, as a client has it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import msgspec
from msgspec.structs import asdict

from bascule.audit.verification import Verification
from bascule.client.http import ApiClient, ApiError
from bascule.wire.api.addresses import AUDIT
from bascule.wire.api.audit import (
    AuditEntry,
    AuditFilters,
    AuditPage,
    CallLife,
    CheckpointMade,
    NewCheckpoint,
)
from bascule.wire.api.errors import Error
from bascule.wire.faults import face

#: A ledger of millions of rows is verified in this time.
VERIFY_SECONDS = 600.0
_NOT_FOUND = "not_found"


class AuditClient:
    """The audit trail of one server, asked with a client's connections and token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def search(self, filters: AuditFilters, before: int | None, limit: int) -> AuditPage:
        """Return the newest entries below a number."""
        asked = {**asdict(filters), "before": before, "limit": limit}
        return await self._api.ask(AuditPage, "GET", AUDIT, query=asked)

    async def life(self, request_id: str) -> CallLife | None:
        """Return what was written about one call, or None when nothing was."""
        try:
            return await self._api.ask(CallLife, "GET", f"{AUDIT}/{quote(request_id, safe='')}")
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    async def watch(
        self, filters: AuditFilters, after: int | None = None
    ) -> AsyncGenerator[AuditEntry, None]:
        """Yield what happens after a row, or from now on; raise ApiError for its last words."""
        asked = {**asdict(filters), "after": after}
        async with aclosing(self._api.events(f"{AUDIT}/watch", query=asked)) as events:
            async for event in events:
                if event.event == "error":
                    words = self._api.shaped(event.data, Error).error
                    raise ApiError(face(words.code).http, words.code, words.message, words.details)
                if event.event != "bookmark":
                    yield self._api.shaped(event.data, AuditEntry)

    def export(self, filters: AuditFilters) -> AsyncGenerator[bytes, None]:
        """Yield every row as lines, in pieces of any length."""
        return self._api.chunks(f"{AUDIT}/export", query=asdict(filters))

    async def verify(self) -> Verification:
        """Have the server verify its ledger."""
        return await self._api.ask(Verification, "POST", f"{AUDIT}/verify", seconds=VERIFY_SECONDS)

    async def checkpoint(self, *, new_key: bool = False) -> CheckpointMade:
        """Have what is written up to now signed."""
        body = msgspec.to_builtins(NewCheckpoint(new_key=new_key))
        return await self._api.ask(CheckpointMade, "POST", f"{AUDIT}/checkpoint", body=body)
