"""The guests of a Bascule server, as a client has them: run a task's module, hear what it says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal, TypeAlias
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import asdict

from bascule.client.http import ApiClient, Unreachable
from bascule.model.json import JsonObject
from bascule.model.session import SessionRequest
from bascule.wire.api.addresses import INVOKE
from bascule.wire.api.guests import GuestExit, GuestLog, GuestOutput, Invocation
from bascule.wire.narrowing import headers_of, user_header
from bascule.wire.sse import SseEvent
from bascule.wire.strict_json import dumps


class GuestWritten(Struct, frozen=True):
    """Bytes that a guest wrote."""

    stream: Literal["stdout", "stderr"]
    data: bytes


GuestSaid: TypeAlias = GuestLog | GuestWritten | GuestExit
_NOTHING = Invocation()


class GuestsClient:
    """The modules of a token's task: every request carries the same narrowing and person."""

    def __init__(
        self, api: ApiClient, request: SessionRequest | None = None, person: str | None = None
    ) -> None:
        self._api = api
        self._headers = {**headers_of(request or SessionRequest()), **user_header(person)}

    async def invoke(
        self, task: str, added: Invocation = _NOTHING
    ) -> AsyncGenerator[GuestSaid, None]:
        """Run a task's module; yield what it says, how it ended last. Closing this ends it."""
        events = self._api.events(
            INVOKE.format(id=quote(task, safe="")),
            method="POST",
            body=dumps({name: value for name, value in asdict(added).items() if value}),
            headers=self._headers,
        )
        async with aclosing(events) as stream:
            async for event in stream:
                said = self._said(event)
                if said is not None:
                    yield said
                if isinstance(said, GuestExit):
                    return
        raise Unreachable(f"{self._api.url}: the stream of a guest ended without its exit")

    def _said(self, event: SseEvent) -> GuestSaid | None:
        if event.event == "stdout" or event.event == "stderr":
            return GuestWritten(event.event, self._bytes(event.data))
        if event.event == "log":
            return self._api.shaped(event.data, GuestLog)
        if event.event == "exit":
            return self._api.shaped(event.data, GuestExit)
        if event.event == "error":
            raise self._api.error(0, self._api.shaped(event.data, JsonObject))
        return None

    def _bytes(self, data: bytes) -> bytes:
        try:
            return self._api.shaped(data, GuestOutput).data
        except ValueError as error:
            raise Unreachable(f"{self._api.url}: output that cannot be read: {error}") from None
