"""What proves to a remote server who we are, as headers of a request, kept valid.

Tokens and secrets stand in no message and no repr.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import NoReturn, Protocol
from urllib.parse import quote_plus, urlencode

from msgspec import Struct

from bascule.clock import Clock
from bascule.errors import DeadlineExceeded, MalformedReply, OutcomeUnknown, ServerUnavailable
from bascule.model.server import Auth, Http
from bascule.outbound.egress import EgressRules, parse_url
from bascule.outbound.failures import Unconnected
from bascule.outbound.headers import header_text
from bascule.outbound.http import HttpClient, HttpRequest
from bascule.outbound.redirects import send_within_origin
from bascule.outbound.references import Reading
from bascule.outbound.url import Url
from bascule.wire.strict_json import JsonValue, StrictJsonError, loads

AUTHORIZATION = "Authorization"
DEFAULT_LIFETIME = 3600.0
RENEW_AT_SHARE = 0.8
RETRY_SECONDS = 30.0
REFUSAL_PAUSE = 5.0

TOKEN_SECONDS = 10.0
TOKEN_BYTES = 65_536

_OK = 200
_UNAUTHORIZED = 401
_BEARER = re.compile(r"^(?:bearer(?:[ \t]+|$))+", re.IGNORECASE)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")
_FORM_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/x-www-form-urlencoded",
}
# What endpoints answer that look for the client in the body: most say invalid_client, some miss
# the parameter and say invalid_request.
_TRY_THE_BODY = frozenset({"invalid_client", "invalid_request"})


class Challenge(Struct, frozen=True):
    """A refusal that a credential may be able to answer: 401, or 403 for want of a scope."""

    status: int
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Challenge({self.status})"  # servers repeat what they refuse


class Credentials(Protocol):
    """Headers that authenticate, kept valid."""

    def at_hand(self) -> Mapping[str, str] | None:
        """Return the headers to send now, if nothing has to be fetched for them."""
        ...

    async def headers(self) -> Mapping[str, str]:
        """Return the headers to send now."""
        ...

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        """Take note of a refusal; return True when the request is worth sending once more.

        ``used`` are the headers that were refused, so that calls refused together with a token
        that has been replaced since do not replace the new one as well. Without a ``challenge``
        it was a 401.
        """
        ...

    async def close(self) -> None:
        """End whatever is under way."""
        ...


class FixedHeaders:
    """Headers that do not change while the connection lasts: none, a bearer token or a header."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self.fixed = dict(headers or {})

    def __repr__(self) -> str:
        return f"FixedHeaders({', '.join(self.fixed)})"

    def at_hand(self) -> Mapping[str, str]:
        return self.fixed

    async def headers(self) -> Mapping[str, str]:
        return self.fixed

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        """Return False: there is nothing else to send."""
        del used, challenge
        return False

    async def close(self) -> None:
        """Nothing is under way."""


def bearer(token: str) -> FixedHeaders:
    """Return a bearer credential, whether or not the value says ``Bearer`` itself."""
    return FixedHeaders({AUTHORIZATION: f"Bearer {bare_token(token)}"})


def bare_token(value: str) -> str:
    """Return a token without white space around it and without ``Bearer`` before it."""
    return _BEARER.sub("", value.strip(), count=1)


def token_text(value: str, field: str) -> str:
    """Return the bare token of a record's field, or raise when no header could carry it."""
    token = bare_token(value)
    if not _TOKEN.fullmatch(token):
        what = "characters that no token has" if token else "nothing"
        raise ServerUnavailable(f"{field}: holds {what}, so it cannot be sent as a bearer token")
    return token


class OAuthClient(Struct, frozen=True):
    """Who asks for tokens, and for what."""

    client_id: str
    secret: str
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OAuthClient(client_id={self.client_id!r}, scopes={self.scopes!r})"

    def basic(self) -> dict[str, str]:
        """Return the client as HTTP Basic, each part form-encoded as RFC 6749 2.3.1 has it."""
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.secret)}"
        return {AUTHORIZATION: f"Basic {b64encode(pair.encode()).decode()}"}

    def form(self, *, in_body: bool) -> dict[str, str]:
        """Return the request for a token, with the client in it if need be."""
        form = {"grant_type": "client_credentials"}
        if self.scopes:
            form["scope"] = " ".join(self.scopes)
        if in_body:
            form |= {"client_id": self.client_id, "client_secret": self.secret}
        return form


class TokenReply(Struct, frozen=True):
    """What a token endpoint answered."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"TokenReply(status={self.status})"

    def content(self) -> Mapping[str, JsonValue]:
        """Return the JSON object in the body; anything else is empty."""
        try:
            value = loads(self.body)
        except StrictJsonError:
            return {}
        return value if isinstance(value, dict) else {}

    def error(self) -> str:
        """Return the error's code. Descriptions are left out: they may repeat what was sent."""
        code = self.content().get("error")
        return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


class TokenEndpoint(Protocol):
    """Where tokens come from."""

    @property
    def name(self) -> str: ...

    async def post(self, form: Mapping[str, str], headers: Mapping[str, str]) -> TokenReply: ...

    async def close(self) -> None: ...


class HttpTokenEndpoint:
    """A token endpoint over HTTP. Its redirects are followed within its origin."""

    def __init__(self, client: HttpClient, url: Url, *, seconds: float = TOKEN_SECONDS) -> None:
        self.name = url.origin
        self._client = client
        self._url = url
        self._seconds = seconds

    async def post(self, form: Mapping[str, str], headers: Mapping[str, str]) -> TokenReply:
        """Post a form; raise ServerUnavailable when there is no answer in time."""
        request = HttpRequest(
            "POST",
            self._url,
            {**_FORM_HEADERS, **headers},
            urlencode(form).encode(),
            asyncio.get_running_loop().time() + self._seconds,
        )
        try:
            answer = await send_within_origin(self._client, request)
            body = await answer.read(TOKEN_BYTES)
        except DeadlineExceeded:
            self._fail(f"did not answer in {self._seconds:g} s")
        except Unconnected as fault:
            self._fail(f"cannot be reached: {fault.words}")
        except (OutcomeUnknown, MalformedReply) as fault:
            self._fail(f"cannot be read: {fault}")
        return TokenReply(answer.status, body)

    async def close(self) -> None:
        """End its connections."""
        await self._client.close()

    def _fail(self, what: str) -> NoReturn:
        raise ServerUnavailable(f"the token endpoint {self.name} {what}") from None


class ClientCredentials:
    """OAuth client credentials: one token for all, fetched once and renewed before it ends.

    Renewing early happens beside the calls, which go on with the token that is still valid; only
    when there is none do they wait. However many ask, one request is under way.
    """

    def __init__(self, client: OAuthClient, endpoint: TokenEndpoint, *, clock: Clock) -> None:
        self._client = client
        self._endpoint = endpoint
        self._clock = clock
        self._in_body = False
        self._headers: Mapping[str, str] = {}
        self._valid_until = self._renew_at = self._refused_at = -inf
        self._flight: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"ClientCredentials({self._client!r}, {self._endpoint.name!r})"

    def at_hand(self) -> Mapping[str, str] | None:
        """Return the token that will do for a while yet."""
        return self._headers if self._clock.monotonic() < self._renew_at else None

    async def headers(self) -> Mapping[str, str]:
        """Return the current token; wait for one only when there is none."""
        now = self._clock.monotonic()
        if now >= self._valid_until:
            await self._renewed()
        elif now >= self._renew_at:
            self._renewal()
        return self._headers

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        """Fetch another token, once for all who were refused together; its scopes stay."""
        if challenge is not None and challenge.status != _UNAUTHORIZED:
            return False
        if used is not None and used.get(AUTHORIZATION) != self._headers.get(AUTHORIZATION):
            return True
        now = self._clock.monotonic()
        if self._flight is None and now - self._refused_at < REFUSAL_PAUSE:
            return used is None  # perhaps it was the token before this one
        self._refused_at = now
        try:
            await self._renewed()
        except ServerUnavailable:
            return False
        return True

    async def close(self) -> None:
        """End a request that is under way; who waits for it is told."""
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.wait([self._flight])
        await self._endpoint.close()

    async def _renewed(self) -> None:
        """Wait for a new token; a caller who gives up does not take it from the others."""
        flight = self._renewal()
        try:
            await asyncio.shield(flight)
        except asyncio.CancelledError:
            if not flight.cancelled():
                raise
            raise ServerUnavailable("the connection was closed") from None

    def _renewal(self) -> asyncio.Task[None]:
        if self._flight is None:
            self._flight = asyncio.get_running_loop().create_task(self._renew())
            self._flight.add_done_callback(self._landed)
        return self._flight

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        if not flight.cancelled() and flight.exception() is not None:
            self._renew_at = self._clock.monotonic() + RETRY_SECONDS

    async def _renew(self) -> None:
        asked = self._clock.monotonic()
        content = await self._fetched()
        token = content.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            self._fail("gives no access_token")
        kind = content.get("token_type", "bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            self._fail("gives tokens that are not bearer tokens")
        lifetime = _lifetime(content.get("expires_in"))
        self._headers = {AUTHORIZATION: f"Bearer {token}"}
        self._valid_until = asked + lifetime
        self._renew_at = asked + lifetime * RENEW_AT_SHARE

    async def _fetched(self) -> Mapping[str, JsonValue]:
        reply = await self._ask(in_body=self._in_body)
        if not self._in_body and _wants_the_body(reply):
            reply = await self._ask(in_body=True)
            self._in_body = reply.status == _OK
        if reply.status != _OK:
            self._fail(f"gives no token: HTTP {reply.status} {reply.error()}".rstrip())
        return reply.content()

    async def _ask(self, *, in_body: bool) -> TokenReply:
        headers = {} if in_body else self._client.basic()
        return await self._endpoint.post(self._client.form(in_body=in_body), headers)

    def _fail(self, what: str) -> NoReturn:
        raise ServerUnavailable(f"the token endpoint {self._endpoint.name} {what}")


def _wants_the_body(reply: TokenReply) -> bool:
    error = reply.error()
    return error in _TRY_THE_BODY or (reply.status == _UNAUTHORIZED and not error)


def _lifetime(value: JsonValue) -> float:
    """Return how long a token lasts; some endpoints write the number as text, some do not say."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return DEFAULT_LIFETIME
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return DEFAULT_LIFETIME
    return max(seconds, 0.0) if isfinite(seconds) else DEFAULT_LIFETIME


async def resolve_login(
    http: Http, reading: Reading, endpoint: Callable[[Url], TokenEndpoint], clock: Clock
) -> FixedHeaders | ClientCredentials:
    """Resolve what the record says about authentication; tokens come from an ``endpoint``."""
    if http.auth_ref is not None:
        return await _bearer(http.auth_ref, "http.auth_ref", reading)
    auth = http.auth
    if auth is None:
        return FixedHeaders()
    if auth.type == "bearer":
        return await _bearer(auth.ref, "http.auth.ref", reading)
    value = await reading.credential(auth.ref, "http.auth.ref")
    reading.remember(value.strip(), secret=True)
    if auth.type == "header":
        text = header_text(value, "http.auth.ref") or _missing("ref")
        return FixedHeaders({auth.header or _missing("header"): text})
    secret = value.strip() or _missing("ref")
    client_id = reading.text(auth.client_id or _missing("client_id"), "http.auth.client_id")
    client = OAuthClient(client_id, secret, auth.scopes)
    return ClientCredentials(client, endpoint(_token_url(auth, reading)), clock=clock)


async def _bearer(ref: str, field: str, reading: Reading) -> FixedHeaders:
    token = token_text(await reading.credential(ref, field), field)
    reading.remember(token, secret=True)
    return bearer(token)


def _token_url(auth: Auth, reading: Reading) -> Url:
    text = reading.text(auth.token_url or _missing("token_url"), "http.auth.token_url")
    url = parse_url(text, "http.auth.token_url")
    # A record may choose plain http for its calls, but not for the client's secret.
    EgressRules.under(reading.rules).check_url(url, insecure=False)
    return url


def _missing(field: str) -> NoReturn:
    raise ServerUnavailable(f"http.auth.{field}: is missing or empty")
