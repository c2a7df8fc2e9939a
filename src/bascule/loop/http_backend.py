"""One model backend over HTTP: its own client for its whole life, one request sent once.

Nothing is resolved or connected before the first request; no redirect is followed, so the key goes
nowhere but to the record's own address; and it stands in no message. ``http_answers`` says what an
answer means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import DeadlineExceeded, MalformedReply, OutcomeUnknown, ServerUnavailable
from bascule.loop.backend import Completion, RawAnswer, UpstreamFailed
from bascule.loop.history import encoded_request
from bascule.loop.http_answers import (
    Ending,
    UpstreamLimits,
    completion,
    event_chunk,
    failure,
    kept_headers,
    masked_pieces,
    model_names,
    require_type,
)
from bascule.model.backend import BackendRecord
from bascule.model.json import JsonObject
from bascule.model.secret_use import backend_use
from bascule.outbound.credentials import AUTHORIZATION
from bascule.outbound.egress import EgressRules, parse_url
from bascule.outbound.failures import Unconnected
from bascule.outbound.headers import header_text, joined, read_headers
from bascule.outbound.http import HttpAnswer, HttpClient, HttpOptions, RequestHead, Resolve
from bascule.outbound.proxies import proxy_for
from bascule.outbound.references import Reading, SecretResolver
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url
from bascule.wire.sse import EventTooLarge, SseReader
from bascule.wire.strict_json import StrictJsonError

MODELS_SECONDS = 10.0
#: How long the end of a stream is waited for after ``[DONE]``, to keep the connection.
DRAIN_SECONDS = 0.1
#: How long after its first stream a server may hang up and be known for it.
SETTLE_SECONDS = 0.005
JSON = "application/json"
EVENTS = "text/event-stream"
Method: TypeAlias = Literal["GET", "POST"]

_FIRST_REDIRECT = 300
_FIRST_ERROR = 400
_STREAMING = frozenset({"stream", "stream_options"})
_UNAUTHORIZED = 401
_REFUSED = frozenset({_UNAUTHORIZED, 403})
_NETWORK = (DeadlineExceeded, MalformedReply, OutcomeUnknown, ServerUnavailable)
_REASONS: Mapping[str, str] = {
    "late": "no connection in time; the record's connect_timeout_ms bounds the wait",
    "certificate": "its certificate is not one we trust",
}


class _Route(Struct, frozen=True):
    """Where requests go and what every one of them carries; never shown."""

    completions: Url
    models: Url
    headers: Mapping[str, str]
    secrets: frozenset[str]
    #: Ready heads, by method, what is accepted, and whether the connection is to be closed.
    heads: dict[tuple[Method, str, bool], RequestHead]

    def __repr__(self) -> str:
        return f"_Route({self.completions!r})"


class HttpUpstream:
    """A ``ChatUpstream`` that speaks HTTP. It may be used by many at once."""

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        record: BackendRecord,
        *,
        rules: NodeRules,
        environ: Mapping[str, str] | None = None,
        secrets: SecretResolver | None = None,
        clock: Clock = SYSTEM_CLOCK,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        limits: UpstreamLimits | None = None,
        on_keys: Callable[[frozenset[str]], None] | None = None,
    ) -> None:
        self.record = record
        self._rules = rules
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._secrets = secrets
        self._clock = clock
        self._limits = limits or UpstreamLimits()
        self._route: _Route | None = None
        self._renewals = 0
        #: Every key that was ever read for it: an answer may repeat the one before.
        self._known: frozenset[str] = frozenset()
        self._on_keys = on_keys
        self._resolve = resolve
        self._tls = tls
        self._client: HttpClient | None = None
        self._opening = asyncio.Lock()
        self._busy = 0
        self._retired = False
        #: Whether the server closes connections after streams, although it promised to keep them.
        self._hangs_up: bool | None = None

    def __repr__(self) -> str:
        return f"HttpUpstream({self.record.name!r})"

    @property
    def name(self) -> str:
        return self.record.name

    async def complete(self, body: JsonObject, *, seconds: float) -> Completion:
        """Return a whole completion object; raise UpstreamFailed, also for a garbled one."""
        data = _encoded({name: body[name] for name in body if name not in _STREAMING})
        async with self._answered("POST", data, JSON, seconds) as (response, known):
            require_type(response, JSON, known)
            return completion(await response.read(self._limits.body_bytes), known)

    async def stream(self, body: JsonObject, *, seconds: float) -> AsyncGenerator[Completion, None]:
        """Yield completion chunks as they arrive, without ``[DONE]``; raise UpstreamFailed."""
        data = _encoded({**body, "stream": True})
        async with self._answered("POST", data, EVENTS, seconds) as (response, known):
            require_type(response, EVENTS, known)
            ending = Ending()
            async with contextlib.aclosing(self._events(response)) as events:
                async for event in events:
                    chunk = event_chunk(event, known)
                    if chunk is None:
                        await response.drain(DRAIN_SECONDS)
                        break
                    ending.note(chunk)
                    yield chunk
                else:
                    ending.refuse_cut()
            await self._settle(response)

    @asynccontextmanager
    async def forward(self, body: bytes) -> AsyncGenerator[RawAnswer, None]:
        """Send a request as it is and give its answer as it comes, errors included.

        Of an error the key is taken out: servers like to repeat the one they refuse.
        """
        seconds = self.record.request_timeout_ms / 1000
        sending = self._answered("POST", body, "*/*", seconds, good=False)
        async with sending as (response, known):
            chunks = self._pieces(response)
            if response.status >= _FIRST_ERROR:
                chunks = masked_pieces(chunks, known)
            async with contextlib.aclosing(chunks):
                yield RawAnswer(response.status, kept_headers(response.headers, known), chunks)

    async def models(self) -> list[str]:
        """Return the names of its models, as it says itself; raise UpstreamFailed."""
        async with self._answered("GET", None, JSON, MODELS_SECONDS) as (response, known):
            require_type(response, JSON, known)
            return model_names(await response.read(self._limits.models_bytes), known)

    def renew_secret(self, name: str) -> None:
        """Read the key anew for the next request, if it is this secret."""
        if self._route is None or name in self._route.secrets:
            self._renewals += 1
            self._route = None

    async def retire(self) -> None:
        """Let the connections go as soon as no request uses them.

        A conversation that is under way may still send its next request: it opens a connection of
        its own, which ends with that request.
        """
        self._retired = True
        if not self._busy:
            await self.close()

    async def close(self) -> None:
        """End every connection and whatever is under way there."""
        if self._client is not None:
            await self._client.close()

    # --- one request

    @asynccontextmanager
    async def _answered(
        self, method: Method, body: bytes | None, accept: str, seconds: float, *, good: bool = True
    ) -> AsyncGenerator[tuple[HttpAnswer, frozenset[str]], None]:
        """Send a request, once; the connection is closed unless its answer was read to the end.

        A refusal is raised, unless whatever is answered is ``good`` enough. No cause is chained to
        what is raised: it may hold a key.
        """
        self._busy += 1
        response = None
        try:
            response = await self._requested(method, body, accept, seconds)
            self._heed(response)
            if good and response.status >= _FIRST_ERROR:
                text = await _beginning(response, self._limits.error_bytes)
                raise failure(response, text, self._known, now=self._clock.now())
            yield response, self._known
        except (*_NETWORK, EventTooLarge) as error:
            raise self._failed(error) from None
        finally:
            if response is not None:
                response.close()  # at once: whoever leaves early must not leave a model at work
            self._busy -= 1
            if self._retired and not self._busy:
                await self.close()

    async def _requested(
        self, method: Method, body: bytes | None, accept: str, seconds: float
    ) -> HttpAnswer:
        """Return the answer once its head is here.

        A request whose key was refused was not carried out: it is sent once more, if the record's
        references give another key by now.
        """
        seconds = min(seconds, self.record.request_timeout_ms / 1000)
        deadline = asyncio.get_running_loop().time() + seconds
        client, route = self._client, self._route
        if client is None or route is None:
            client, route = await self._opened()
        answer = await client.exchange(self._head(client, route, method, accept), body, deadline)
        if answer.status == _UNAUTHORIZED:
            renewed = await self._renewed(route, answer)
            if renewed is not None:
                head = self._head(client, renewed, method, accept)
                answer = await client.exchange(head, body, deadline)
        return answer

    async def _renewed(self, used: _Route, refused: HttpAnswer) -> _Route | None:
        """Return the route as it is read now, if its headers are others than those refused."""
        if self._route is used:
            self._route = None
        try:
            _, route = await self._opened()
        except BaseException:
            refused.close()
            raise
        if route.headers == used.headers:
            return None
        refused.close()
        return route

    def _head(self, client: HttpClient, route: _Route, method: Method, accept: str) -> RequestHead:
        last = bool(self._hangs_up) and accept != JSON
        head = route.heads.get((method, accept, last))
        if head is None:
            own = {"Accept": accept, "Accept-Encoding": "identity"}
            if method == "POST":
                own["Content-Type"] = JSON
            if last:
                own["Connection"] = "close"
            at = route.models if method == "GET" else route.completions
            head = client.head(method, at, {**route.headers, **own})
            route.heads[method, accept, last] = head
        return head

    def _heed(self, response: HttpAnswer) -> None:
        """Refuse redirects; after a refusal of the key, read it anew for the next request."""
        if _FIRST_REDIRECT <= response.status < _FIRST_ERROR:
            raise UpstreamFailed(
                f"it answers with a redirect (HTTP {response.status}), which is not followed; put "
                "the server's own address into base_url"
            ).of(self.name)
        if response.status in _REFUSED:
            self._route = None

    def _failed(self, error: Exception) -> UpstreamFailed:
        """Return what the network does as a failure of this backend."""
        late = isinstance(error, DeadlineExceeded) or getattr(error, "why", "") == "late"
        return UpstreamFailed(_reason(error), timed_out=late).of(self.name)

    async def _events(self, response: HttpAnswer) -> AsyncGenerator[bytes, None]:
        reader = SseReader(self._limits.event_bytes)
        taken = 0
        async for piece in response:
            taken += len(piece)
            if taken > self._limits.stream_bytes:
                raise UpstreamFailed(f"a stream of more than {self._limits.stream_bytes} bytes")
            for event in reader.feed(piece):
                yield event.data

    async def _pieces(self, response: HttpAnswer) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in response:
                yield piece
        except _NETWORK as error:
            raise self._failed(error) from None
        if response.content_type == EVENTS:
            await self._settle(response)

    async def _settle(self, response: HttpAnswer) -> None:
        """See whether the server hangs up after a stream: the next request would run into that.

        llama.cpp does, having promised to keep the connection. The first time it is given a
        moment, later only the turn in which the end of the stream was read.
        """
        await SYSTEM_CLOCK.sleep(SETTLE_SECONDS if self._hangs_up is None else 0)
        self._hangs_up = self._hangs_up or not response.connected

    # --- opening

    async def _opened(self) -> tuple[HttpClient, _Route]:
        async with self._opening:
            while (route := self._route) is None:
                before, read = self._renewals, await self._resolved()
                self._route = read if before == self._renewals else None
            if self._client is None:
                options = HttpOptions(
                    connect_seconds=self.record.connect_timeout_ms / 1000,
                    egress=EgressRules.under(self._rules),
                    insecure=self.record.insecure,
                    tls=self._tls,
                    resolve=self._resolve,
                    proxy=proxy_for(route.completions, self._rules, self._environ),
                )
                self._client = HttpClient(options)
            return self._client, route

    async def _resolved(self) -> _Route:
        use = backend_use(self.record)
        reading = Reading(self._rules, self._environ, self._secrets, use)
        url = parse_url(reading.text(self.record.base_url, "base_url"), "base_url")
        EgressRules.under(self._rules).check_url(url, insecure=self.record.insecure)
        headers = await read_headers(self.record.headers, "headers", reading)
        if self.record.key_ref is not None:
            key = header_text(await reading.credential(self.record.key_ref, "key_ref"), "key_ref")
            reading.remember(key, secret=True)
            if key:
                headers = joined(headers, {AUTHORIZATION: f"Bearer {key}"})
        self._known |= reading.known
        if self._on_keys is not None:
            self._on_keys(self._known)
        return _Route(
            url.below("chat", "completions"),
            url.below("models"),
            headers,
            frozenset(reading.secrets_read),
            {},
        )


def _encoded(body: JsonObject) -> bytes:
    try:
        return encoded_request(body)
    except StrictJsonError as error:
        raise UpstreamFailed(f"the request cannot be sent: {error}") from None


async def _beginning(response: HttpAnswer, limit: int) -> bytes:
    """Return a body, or its first bytes where it is longer."""
    text = bytearray()
    async for piece in response:
        text += piece
        if len(text) >= limit:
            break
    return bytes(text[:limit])


def _reason(error: Exception) -> str:
    """Say what happened on the way, and which settings bound a wait."""
    if isinstance(error, DeadlineExceeded):
        return f"{error}; the record's request_timeout_ms and chat.max_seconds bound the wait"
    if isinstance(error, OutcomeUnknown):
        return f"it broke off: {error}"
    if isinstance(error, Unconnected):
        return _REASONS.get(error.why, f"cannot be reached: {error.words}")
    return f"it sent {error}" if isinstance(error, MalformedReply | EventTooLarge) else str(error)
