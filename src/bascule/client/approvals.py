"""The approvals of a Bascule server, as a client has them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from bascule.client.http import ApiClient, ApiError
from bascule.wire.api.addresses import APPROVALS
from bascule.wire.api.approvals import ApprovalPage, ApprovalQuestion, ApprovalShown, NewDecision
from bascule.wire.api.errors import Error
from bascule.wire.faults import face

PAGE = 1_000
#: How much longer than a decision its answer is waited for.
_SPARE_SECONDS = 30.0


class ApprovalsClient:
    """The approvals of one server, asked with a client's connections and token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def page(
        self, filters: Mapping[str, str | None], limit: int, cursor: str | None = None
    ) -> ApprovalPage:
        """Return approvals, the newest first."""
        asked = {**filters, "limit": limit, "cursor": cursor}
        return await self._api.ask(ApprovalPage, "GET", APPROVALS, query=asked)

    async def every(self, filters: Mapping[str, str | None]) -> AsyncGenerator[ApprovalShown, None]:
        """Yield all of them, the newest first."""
        cursor: str | None = None
        while True:
            page = await self.page(filters, PAGE, cursor)
            for approval in page.approvals:
                yield approval
            cursor = page.next_cursor
            if cursor is None:
                return

    async def question(self, id: str, wait_seconds: float = 0) -> ApprovalQuestion:
        """Return a question with what it is about; wait for a decision at most so long."""
        asked = {"wait_ms": int(wait_seconds * 1_000)} if wait_seconds else {}
        return await self._api.ask(
            ApprovalQuestion, "GET", _place(id), query=asked, seconds=wait_seconds + _SPARE_SECONDS
        )

    async def decide(self, id: str, decision: NewDecision) -> ApprovalShown:
        """Approve or deny; raise ApiError, and nothing has changed."""
        body = msgspec.to_builtins(decision)
        return await self._api.ask(ApprovalShown, "POST", f"{_place(id)}/decision", body=body)

    async def watch(self, filters: Mapping[str, str | None]) -> AsyncGenerator[ApprovalShown, None]:
        """Yield what is pending, then every step; raise ApiError for the server's last words."""
        async with aclosing(self._api.events(f"{APPROVALS}/watch", query=filters)) as events:
            async for event in events:
                if event.event == "error":
                    words = self._api.shaped(event.data, Error).error
                    raise ApiError(face(words.code).http, words.code, words.message, words.details)
                yield self._api.shaped(event.data, ApprovalShown)


def _place(id: str) -> str:
    return f"{APPROVALS}/{quote(id, safe='')}"
