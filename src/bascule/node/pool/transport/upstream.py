"""One remote server as HTTP sees it: a session, a TLS context and a credential, for its whole life.

Above: the HTTP transports (``http``, ``sse``), one upstream per channel. Below: ``egress`` opens
the connections, ``credentials`` keeps the headers valid, ``references`` reads what the record
refers to. Nothing here leaves the origin of the record's URL, except to fetch a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn
from urllib.parse import urlencode

import aiohttp
from aiohttp.abc import AbstractResolver
from msgspec import Struct
from yarl import URL

from bascule import __version__
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import MalformedReply, ServerUnavailable
from bascule.model.reference import names_a_credential
from bascule.model.server import Http, ServerRecord, Tls
from bascule.node.egress import CheckedConnector, EgressRules, parse_url
from bascule.node.pool.transport.body import READ_BUFFER, read_capped
from bascule.node.pool.transport.credentials import (
    Challenge,
    ClientCredentials,
    Credentials,
    Fetched,
    FixedHeaders,
    SignIn,
    SignInSite,
    TokenLogin,
    TokenReply,
    header_text,
    resolve_login,
)
from bascule.node.references import Reading, SecretResolver
from bascule.node.rules import NodeRules

MAX_REDIRECTS = 3
TOKEN_SECONDS = 10.0
TOKEN_BYTES = 65_536
FETCH_BYTES = 262_144
TOKENS_MASKED = 4
HEADER_LINE = 8_190

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD = frozenset({307, 308})
_SAFE = frozenset({"GET", "HEAD"})
# The transport's own headers: what a record says about them is passed over.
_OWNED = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OWNED_PREFIX = "mcp-param-"
_CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})


async def open_upstream(  # noqa: PLR0913 - options, all by keyword
    record: ServerRecord,
    rules: NodeRules,
    *,
    environ: Mapping[str, str],
    secrets: SecretResolver | None = None,
    clock: Clock = SYSTEM_CLOCK,
    resolver: AbstractResolver | None = None,
    learned: Callable[[KnownValues], None] | None = None,
    sign_in: SignIn | None = None,
) -> Upstream:
    """Return an upstream for a record, its references resolved now; nothing is connected yet.

    Raises with the field at fault and what to do. ``resolver`` stands in for the machine's own;
    ``learned`` is told of what must be hidden, now and whenever a new token joins it; ``sign_in``
    is asked where the record names no credential.
    """
    http = _http(record)
    egress = EgressRules(rules.egress)
    reading = Reading(rules, environ, secrets)
    url = parse_url(reading.text(http.url, "http.url"), "http.url")
    egress.check_url(url, insecure=http.insecure)
    headers = await _record_headers(http, reading)
    login = await resolve_login(http, reading, egress)
    tls = await _tls(http.tls, reading)
    values = KnownValues(reading, learned)
    session = _session(
        CheckedConnector(egress, insecure=http.insecure, tls=tls.server, resolver=resolver),
        connect_seconds=record.budgets.connect_timeout_ms / 1000,
    )
    if isinstance(login, TokenLogin):
        trust = tls.server if same_origin(login.url, url) else tls.elsewhere
        endpoint = HttpTokenEndpoint(session, login.url, tls=trust)
        login = ClientCredentials(login.client, endpoint, clock=clock, learned=values.learn)
    elif sign_in is not None and http.auth is None and http.auth_ref is None:
        fetch = HttpFetch(session, url, tls, egress)
        login = sign_in(SignInSite(record.server_id, str(url), fetch, values.learn)) or login
    return Upstream(session, url, headers=headers, credentials=login, values=values)


class HttpLimits(Struct, frozen=True):
    """Hard caps of one channel, on bytes after decompression."""

    body_bytes: int = 8 * 1024 * 1024
    event_bytes: int = 8 * 1024 * 1024
    error_bytes: int = 64 * 1024


class KnownValues:
    """What came from references, and the last few tokens: to be masked, never written down."""

    def __init__(
        self, reading: Reading, learned: Callable[[KnownValues], None] | None = None
    ) -> None:
        self._known = frozenset(reading.known)
        self._read = frozenset(reading.read)
        self._tokens: tuple[str, ...] = ()
        self.known = self._known
        self.read = self._read
        self._learned = learned
        if learned is not None:
            learned(self)

    def learn(self, token: str) -> None:
        """Add a token. A server may still repeat the one before it."""
        self._tokens = (token, *self._tokens)[:TOKENS_MASKED]
        self.known = self._known.union(self._tokens)
        self.read = self._read.union(self._tokens)
        if self._learned is not None:
            self._learned(self)


class Upstream:
    """A way to one server. ``session`` opens no connection that the node's rules refuse."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        *,
        headers: Mapping[str, str],
        credentials: Credentials,
        values: KnownValues,
    ) -> None:
        self.session = session
        self.url = url
        self.origin = str(url.origin())
        self._headers = headers
        self._proof: Mapping[str, str] = {}
        self._complete = headers
        self._credentials = credentials
        self._values = values
        #: What every request carries, where the credential never changes.
        self.constant: Mapping[str, str] | None = None
        if isinstance(credentials, FixedHeaders):
            self.constant = _joined(headers, credentials.fixed)

    def __repr__(self) -> str:
        return f"Upstream({self.origin!r})"

    @property
    def known_values(self) -> frozenset[str]:
        """Return the credentials in use, which nobody may be shown. It grows with each token."""
        return self._values.known

    @property
    def reference_values(self) -> frozenset[str]:
        """Return every value that came from a reference, which may not be written down."""
        return self._values.read

    async def headers(self) -> Mapping[str, str]:
        """Return what every request of whatever kind carries; the credential's word counts."""
        proof = await self._credentials.headers()
        if proof is not self._proof:
            self._proof, self._complete = proof, _joined(self._headers, proof)
        return self._complete

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        """Take note of a refusal; return True when the request is worth sending once more.

        ``used`` are the headers of the refused request; with them, a token that has been
        replaced meanwhile is not replaced again.
        """
        return await self._credentials.refused(used, challenge)

    async def send(
        self,
        method: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        url: URL | str | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer once its head is here; the caller closes it.

        ``headers`` are complete (see ``headers``). Redirects are followed within the origin.
        Raises ServerUnavailable for one that is not, and aiohttp's errors as they are.
        """
        target = self.url if url is None else self._own(url)

        def sent(hop: URL) -> Awaitable[aiohttp.ClientResponse]:
            return self.session.request(
                method, hop, data=body, headers=headers, allow_redirects=False
            )

        return await follow(sent, method, target, await sent(target))

    async def close(self) -> None:
        """End every connection and whatever is under way."""
        await self._credentials.close()
        await self.session.close()

    def _own(self, url: URL | str) -> URL:
        """Refuse to carry our credential to another origin, whoever named it."""
        if not same_origin(url, self.url):
            raise ServerUnavailable(f"a URL outside {self.origin}, where our credential belongs")
        return URL(url)


def _joined(headers: Mapping[str, str], proof: Mapping[str, str]) -> dict[str, str]:
    """Put a credential's headers in the place of the record's own of the same name."""
    names = {name.lower() for name in proof}
    own = {name: text for name, text in headers.items() if name.lower() not in names}
    return own | dict(proof)


def same_origin(a: URL | str, b: URL | str) -> bool:
    """Say whether two absolute URLs have scheme, host and port in common."""
    with contextlib.suppress(ValueError):
        return _origin(URL(a)) == _origin(URL(b))
    return False


def _origin(url: URL) -> tuple[str, str, int]:
    if url.raw_host is None or url.port is None:
        raise ValueError("no origin")
    return url.scheme, url.raw_host, url.port


async def follow(
    send: Callable[[URL], Awaitable[aiohttp.ClientResponse]],
    method: str,
    url: URL,
    response: aiohttp.ClientResponse,
) -> aiohttp.ClientResponse:
    """Follow redirects, if there are any: three at most, within the origin, with the same method.

    A status that would turn a POST into a GET is refused: the request would be lost on the way.
    """
    for _ in range(MAX_REDIRECTS):
        if response.status not in _REDIRECTS:
            return response
        response.release()
        url = _next_hop(response, method, url)
        response = await send(url)
    if response.status not in _REDIRECTS:
        return response
    response.release()
    raise ServerUnavailable(f"{url.origin()} redirects more than {MAX_REDIRECTS} times")


def _next_hop(response: aiohttp.ClientResponse, method: str, url: URL) -> URL:
    if response.status not in _KEEP_METHOD and method not in _SAFE:
        raise ServerUnavailable(
            f"{url.origin()} answers a {method} with a redirect that would not keep it "
            f"(HTTP {response.status}); the URL in the record is probably not the server's own"
        )
    location = response.headers.get("Location")
    if not location:
        raise ServerUnavailable(f"{url.origin()} redirects without saying where")
    try:
        target = url.join(URL(location))
    except ValueError:
        target = URL()
    if not same_origin(target, url):
        raise ServerUnavailable(
            f"{url.origin()} redirects to another origin, where our credential does not belong; "
            "if that is the server's new place, put it into the record"
        )
    return target.with_user(None)


def _session(connector: CheckedConnector, *, connect_seconds: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        read_bufsize=READ_BUFFER,
        max_line_size=HEADER_LINE,
        max_field_size=HEADER_LINE,
        headers={"User-Agent": f"bascule/{__version__}"},
        skip_auto_headers=("Accept-Encoding",),
        # Streams stay open; whoever sends a request gives it its deadline.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
    )


def _http(record: ServerRecord) -> Http:
    if record.http is None:
        raise ServerUnavailable(f"{record.server_id} has no [http] table to reach a server by")
    return record.http


async def _record_headers(http: Http, reading: Reading) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, text in http.headers.items():
        lower, field = name.lower(), f"http.headers.{name}"
        if lower in _OWNED or lower.startswith(_OWNED_PREFIX):
            continue
        secret = lower in _CREDENTIAL_HEADERS or names_a_credential(lower.replace("-", "_"))
        headers[name] = header_text(await reading.value(text, field, secret=secret), field)
    return headers


class _Trust(Struct, frozen=True):
    """TLS for the server itself, and for a token endpoint that stands elsewhere."""

    server: ssl.SSLContext | bool = True
    elsewhere: ssl.SSLContext | bool = True


async def _tls(tls: Tls | None, reading: Reading) -> _Trust:
    """Read the record's certificates. Without any, aiohttp's one verifying context serves all."""
    if tls is None:
        return _Trust()
    ca = await _path(tls.ca, "http.tls.ca", reading)
    certificate = await _path(tls.client_certificate, "http.tls.client_certificate", reading)
    key = await _path(tls.client_key, "http.tls.client_key", reading)
    if key is not None and certificate is None:
        raise ServerUnavailable("http.tls.client_key: needs a client_certificate beside it")
    return await asyncio.to_thread(_trust, ca, certificate, key)


async def _path(text: str | None, field: str, reading: Reading) -> str | None:
    return None if text is None else await reading.path(text, field)


def _trust(ca: str | None, certificate: str | None, key: str | None) -> _Trust:
    """Make the contexts. A record's CA is all its server is checked against; elsewhere it adds."""
    server = _context(ca)
    elsewhere = _context(None)
    if ca is not None:
        elsewhere.load_verify_locations(ca)
    if certificate is not None:
        _present(server, certificate, key)
    return _Trust(server, elsewhere)


def _context(ca: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError:  # which an SSLError is as well
        raise ServerUnavailable(f"http.tls.ca: {ca} holds no certificate") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _present(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Load the client's certificate; a locked key must not ask for its password at a terminal."""
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError:
        raise ServerUnavailable(
            f"http.tls: {certificate} and its key cannot be used: they must be PEM, belong "
            "together, and the key must have no password"
        ) from None


class HttpTokenEndpoint:
    """A token endpoint over the upstream's own session, so under the same rules."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        *,
        tls: ssl.SSLContext | bool = True,
        seconds: float = TOKEN_SECONDS,
    ) -> None:
        self.name = str(url.origin())
        self._session = session
        self._url = url
        self._tls = tls
        self._seconds = seconds

    async def post(self, form: Mapping[str, str], headers: Mapping[str, str]) -> TokenReply:
        """Post a form. Causes are not chained: aiohttp's errors may carry what was sent."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._post(urlencode(form).encode(), headers)
        except TimeoutError:
            self._fail(f"did not answer in {self._seconds:g} s")
        except (aiohttp.ClientConnectorError, OSError) as fault:
            self._fail(f"cannot be reached: {fault}")
        except aiohttp.ClientError as fault:
            self._fail(f"cannot be read: {type(fault).__name__}")
        except MalformedReply as fault:
            self._fail(f"cannot be read: {fault}")

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> TokenReply:
        own = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
        }

        def sent(hop: URL) -> Awaitable[aiohttp.ClientResponse]:
            return self._session.post(
                hop, data=body, headers={**own, **headers}, allow_redirects=False, ssl=self._tls
            )

        response = await follow(sent, "POST", self._url, await sent(self._url))
        async with response:
            return TokenReply(response.status, await read_capped(response, TOKEN_BYTES))

    def _fail(self, what: str) -> NoReturn:
        raise ServerUnavailable(f"the token endpoint {self.name} {what}") from None


class HttpFetch:
    """Requests to others while signing in, over the upstream's session: under the same rules."""

    def __init__(
        self, session: aiohttp.ClientSession, url: URL, trust: _Trust, egress: EgressRules
    ) -> None:
        self._session = session
        self._url = url
        self._trust = trust
        self._egress = egress

    async def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Fetched:
        """Return the answer. Causes are not chained: aiohttp's errors may carry what was sent."""
        target = parse_url(url, "the address to sign in at")
        # A record may choose plain http for its calls, but not for who it is.
        self._egress.check_url(target, insecure=False)
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                return await self._fetched(method, target, headers, body)
        except TimeoutError:
            problem = f"did not answer in {TOKEN_SECONDS:g} s"
        except (aiohttp.ClientError, OSError, MalformedReply) as fault:
            problem = f"cannot be reached or read: {type(fault).__name__}"
        raise ServerUnavailable(f"signing in: {target.origin()} {problem}")

    async def _fetched(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes
    ) -> Fetched:
        trust = self._trust.server if same_origin(url, self._url) else self._trust.elsewhere
        response = await self._session.request(
            method,
            url,
            data=body or None,
            headers={**headers, "Accept-Encoding": "identity"},
            allow_redirects=False,
            ssl=trust,
        )
        async with response:
            content = await read_capped(response, FETCH_BYTES)
            return Fetched(response.status, response.headers, content)
