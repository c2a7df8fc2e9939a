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

    async def newest(self, filters: Mapping[str, str | None], limit: int) -> ApprovalPage:
        """Return at most so many, the newest first, in as many requests as that takes."""
        found: list[ApprovalShown] = []
        asked: dict[str, str | int | None] = {**filters, "cursor": None}
        while True:
            asked["limit"] = min(limit - len(found), PAGE)
            page = await self._api.ask(ApprovalPage, "GET", APPROVALS, query=asked)
            found += page.approvals
            asked["cursor"] = page.next_cursor
            if page.next_cursor is None or len(found) >= limit:
                return ApprovalPage(tuple(found), page.next_cursor)

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
