"""What the requests of one HTTP channel carry, and their heads, kept ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping

from bascule.node.pool.transport.upstream import Upstream
from bascule.outbound.http import RequestHead
from bascule.wire import era
from bascule.wire.http_headers import PROTOCOL_VERSION, SESSION_ID, request_headers

POST_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
_MOST_HEADS = 1_000


class HttpSession:
    """The generation that was negotiated, and the id that a legacy server gave our session."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._credentials = upstream.credentials
        self.era: era.Era | None = None
        self.version: str | None = None
        self.id: str | None = None
        # Heads of calls by method and name, as long as the credential and the session are the same.
        self._proof: Mapping[str, str] | None = None
        self._heads: dict[tuple[str, str | None], RequestHead] = {}

    def settle(self, spoken: era.Era | None, version: str | None) -> None:
        """Take what is spoken from now on."""
        self.era, self.version, self._heads = spoken, version, {}

    def begin(self, session_id: str | None) -> None:
        """Take the id that a server gave, or none."""
        self.id, self._heads = session_id, {}

    def headers(self) -> dict[str, str]:
        """Return what a legacy request carries in its session."""
        headers: dict[str, str] = {}
        if self.version is not None:
            headers[PROTOCOL_VERSION] = self.version
        if self.id is not None:
            headers[SESSION_ID] = self.id
        return headers

    def headers_of(
        self, method: str, name: str | None, more: Mapping[str, str] | None
    ) -> Mapping[str, str]:
        """Return what one request carries; ``more`` is for modern servers alone."""
        if self.era == "modern" or method == "server/discover":
            return {**request_headers(era.MODERN, method, name), **(more or {})}
        return {} if method == "initialize" else self.headers()

    def head(
        self, method: str, name: str | None, more: Mapping[str, str] | None
    ) -> RequestHead | None:
        """Return the head of a usual request; None where a credential has to be fetched first."""
        if not more and self._credentials.at_hand() is self._proof:
            head = self._heads.get((method, name))
            if head is not None:
                return head
        return self._made(method, name, more)

    def _made(
        self, method: str, name: str | None, more: Mapping[str, str] | None
    ) -> RequestHead | None:
        proof, common = self._credentials.at_hand(), self._upstream.at_hand()
        if common is None:
            return None
        own = self.headers_of(method, name, more)
        head = self._upstream.post_head({**common, **POST_HEADERS, **own})
        if proof is not self._proof or len(self._heads) >= _MOST_HEADS:
            self._proof, self._heads = proof, {}
        if not more and name is not None:  # what names no tool is asked once in a long while
            self._heads[method, name] = head
        return head
