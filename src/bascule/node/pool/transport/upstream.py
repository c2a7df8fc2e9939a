"""The way to one remote MCP server: its URL, headers and credential over one HTTP client.

Nothing here leaves the origin of the record's URL, except to fetch a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import NotDelivered, ServerUnavailable
from bascule.model.server import Http, ServerRecord
from bascule.node.pool.transport.channel import Outdated, nobody_renews
from bascule.outbound.credentials import (
    AUTHORIZATION,
    Challenge,
    Credentials,
    HttpTokenEndpoint,
    bare_token,
    resolve_login,
)
from bascule.outbound.egress import EgressRules, parse_url
from bascule.outbound.headers import joined, read_headers
from bascule.outbound.http import (
    HttpAnswer,
    HttpClient,
    HttpOptions,
    HttpRequest,
    RequestHead,
    nobody_waits,
)
from bascule.outbound.proxies import proxy_for
from bascule.outbound.redirects import send_within_origin
from bascule.outbound.references import Reading
from bascule.outbound.tls import read_tls
from bascule.outbound.url import Url

#: Told of credentials, to be masked, and of all that references gave, never to be written down.
Learned: TypeAlias = Callable[[Set[str], Set[str]], None]


_UNAUTHORIZED = 401


def _ignore(_known: Set[str], _read: Set[str]) -> None:
    pass


async def _none_changed() -> Set[str]:
    return set()


async def open_upstream(
    record: ServerRecord,
    reading: Reading,
    clock: Clock = SYSTEM_CLOCK,
    learned: Learned = _ignore,
    *,
    on_outdated: Callable[[], None] = nobody_renews,
    on_connected: Callable[[], None] = nobody_waits,
) -> Upstream:
    """Return an upstream for a record, its references resolved now; nothing is connected yet.

    Raises with the field at fault and what to do. ``learned`` is told of what must be hidden, now
    and before a new token is used, ``on_outdated`` when a secret was refused that has changed,
    ``on_connected`` of every connection that is made to the server.
    """
    http = _http(record)
    egress = EgressRules.under(reading.rules)
    url = parse_url(reading.text(http.url, "http.url"), "http.url")
    egress.check_url(url, insecure=http.insecure)
    headers = await read_headers(http.headers, "http.headers", reading)
    tls = await read_tls(http.tls, reading)
    options = HttpOptions(
        connect_seconds=record.budgets.connect_timeout_ms / 1000,
        egress=egress,
        insecure=http.insecure,
        tls=tls.server,
        proxy=proxy_for(url, reading.rules, reading.environ),
        on_connected=on_connected,
    )

    def endpoint(at: Url) -> HttpTokenEndpoint:
        trust = tls.server if at.origin == url.origin else tls.elsewhere
        proxy = proxy_for(at, reading.rules, reading.environ)
        there = replace(options, tls=trust, insecure=False, proxy=proxy, on_connected=nobody_waits)
        return HttpTokenEndpoint(HttpClient(there), at)

    login = await resolve_login(http, reading, endpoint, clock)
    learned(reading.known, reading.read)
    upstream = Upstream(
        HttpClient(options), url, headers=headers, credentials=login, learned=learned
    )
    upstream.changed_secrets = reading.changed_secrets
    upstream.on_outdated = on_outdated
    return upstream


class HttpLimits(Struct, frozen=True):
    """Hard caps of one channel: on bytes after decompression, and on waiting for its GET stream."""

    body_bytes: int = 8 * 1024 * 1024
    event_bytes: int = 8 * 1024 * 1024
    error_bytes: int = 64 * 1024
    listen_seconds: float = 1.0


class Upstream:
    """A way to one server, under the node's egress rules."""

    def __init__(
        self,
        client: HttpClient,
        url: Url,
        *,
        headers: Mapping[str, str],
        credentials: Credentials,
        learned: Learned = _ignore,
    ) -> None:
        self.url = url
        self.origin = url.origin
        self._client = client
        self.closed = False
        self._headers = headers
        self._proof = credentials.at_hand()
        self._complete = headers if self._proof is None else joined(headers, self._proof)
        self.credentials = credentials
        self._learned = learned
        #: Asked after a refusal which of its secrets are others by now.
        self.changed_secrets: Callable[[], Awaitable[Set[str]]] = _none_changed
        self.on_outdated: Callable[[], None] = nobody_renews
        #: Whether one of them is: only what is under way ends here.
        self.outdated = False

    def __repr__(self) -> str:
        return f"Upstream({self.origin!r})"

    def at_hand(self) -> Mapping[str, str] | None:
        """Return ``headers``, the same object while they are the same, if there is no wait."""
        proof = self.credentials.at_hand()
        return None if proof is None else self._with(proof)

    async def headers(self) -> Mapping[str, str]:
        """Return what every request of whatever kind carries; the credential's word counts."""
        try:
            return self._with(await self.credentials.headers())
        except ServerUnavailable:
            await self._refuse_outdated()
            raise

    def _with(self, proof: Mapping[str, str]) -> Mapping[str, str]:
        if proof is not self._proof:
            if token := bare_token(proof.get(AUTHORIZATION, "")):
                self._learned({token}, {token})
            self._proof, self._complete = proof, joined(self._headers, proof)
        return self._complete

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        """Take note of a refusal; return True when the request is worth sending once more.

        ``used`` are the headers of the refused request; with them, a token that has been
        replaced meanwhile is not replaced again. Raise Outdated where a secret has been replaced:
        the request belongs to a new connection.
        """
        if await self.credentials.refused(used, challenge):
            return True
        if challenge is None or challenge.status == _UNAUTHORIZED:
            await self._refuse_outdated()
        return False

    async def _refuse_outdated(self) -> None:
        if not self.outdated and await self.changed_secrets() and not self.outdated:
            self.outdated = True
            self.on_outdated()
        if self.outdated:
            raise Outdated(f"{self.origin} refused a secret that has changed since")

    async def send(
        self,
        method: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        url: Url | None = None,
        first: HttpAnswer | None = None,
    ) -> HttpAnswer:
        """Send a request and return the answer once its head is here; the caller closes it.

        ``headers`` are complete (see ``headers``). Redirects are followed within the origin;
        ``first`` is the answer to this very request, if it was sent before. Raises
        ServerUnavailable for a redirect that leads elsewhere, and what ``outbound.failures`` lists.
        """
        if self.closed:
            raise NotDelivered("the connection is closed")
        target = self.url if url is None else self._own(url)
        request = HttpRequest(method, target, headers, body)
        return await send_within_origin(self._client, request, first)

    def post_head(self, headers: Mapping[str, str]) -> RequestHead:
        """Return the head of a POST to the server, to be sent as often as wanted."""
        return self._client.head("POST", self.url, headers)

    def post(self, head: RequestHead, body: bytes, deadline: float) -> Awaitable[HttpAnswer]:
        """Send one POST and give whatever is answered; see ``send`` for what is raised."""
        if self.closed:
            raise NotDelivered("the connection is closed")
        return self._client.exchange(head, body, deadline)

    async def hang_up(self) -> None:
        """End every connection and whatever is under way there; others may follow."""
        await self._client.close()

    async def close(self) -> None:
        """End every connection and whatever is under way."""
        self.closed = True
        await self.credentials.close()
        await self._client.close()

    def _own(self, url: Url) -> Url:
        """Refuse to carry our credential to another origin, whoever named it."""
        if url.origin != self.origin:
            raise ServerUnavailable(f"a URL outside {self.origin}, where our credential belongs")
        return url


def _http(record: ServerRecord) -> Http:
    if record.http is None:
        raise ServerUnavailable(f"{record.server_id} has no [http] table to reach a server by")
    return record.http
