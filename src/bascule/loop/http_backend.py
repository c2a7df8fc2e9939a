"""One backend over HTTP: a session for its whole life, one request sent once.

Below: ``bascule.node.egress`` opens the connections, ``bascule.node.references`` reads the key,
``http_answers.py`` says what an answer means. Above: ``backends.py``, which makes one of these for
each record. Nothing is resolved or connected before the first request; no redirect is followed, so
the key goes nowhere but to the record's own address; and it stands in no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from msgspec import Struct
from yarl import URL

from bascule import __version__
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import ServerUnavailable
from bascule.loop.backend import RawAnswer, UpstreamFailed
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
from bascule.model.reference import names_a_credential
from bascule.node.egress import CheckedConnector, EgressRules, parse_url
from bascule.node.references import Reading, SecretResolver
from bascule.node.rules import NodeRules
from bascule.wire.sse import EventTooLarge, SseReader
from bascule.wire.strict_json import StrictJsonError, dumps

MODELS_SECONDS = 10.0
#: How long the end of a stream is waited for after ``[DONE]``, to keep the connection.
DRAIN_SECONDS = 0.1
#: How long after its first stream a server may hang up and be known for it.
SETTLE_SECONDS = 0.005
READ_BUFFER = 65_536
HEADER_LINE = 8_190
JSON = "application/json"
EVENTS = "text/event-stream"

_FIRST_REDIRECT = 300
_FIRST_ERROR = 400
_STREAMING = frozenset({"stream", "stream_options"})
_REFUSED = frozenset({401, 403})
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Ours to say: what a record says about them is passed over.
_OWNED = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


# The connection of the request that was sent last in this context.
_LINE: ContextVar[ResponseHandler | None] = ContextVar("line", default=None)


class _Connector(CheckedConnector):
    """Tells which connection a request goes by: a short answer no longer knows."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> Connection:
        """Return a connection, kept or new."""
        connection = await super().connect(req, traces, timeout)
        _LINE.set(connection.protocol)
        return connection


class _Route(Struct, frozen=True):
    """Where requests go and what every one of them carries; never shown."""

    completions: URL
    models: URL
    headers: Mapping[str, str]
    known: frozenset[str]


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
        resolver: AbstractResolver | None = None,
        limits: UpstreamLimits | None = None,
    ) -> None:
        self.record = record
        self._rules = rules
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._secrets = secrets
        self._clock = clock
        self._resolver = resolver
        self._limits = limits or UpstreamLimits()
        self._route: _Route | None = None
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()
        self._busy = 0
        self._retired = False
        #: Whether the server closes connections after streams, although it promised to keep them.
        self._hangs_up: bool | None = None

    def __repr__(self) -> str:
        return f"HttpUpstream({self.record.name!r})"

    @property
    def name(self) -> str:
        """Return the backend's name."""
        return self.record.name

    async def complete(self, body: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        """Return a whole completion object; raise UpstreamFailed, also for a garbled one."""
        data = _encoded({name: body[name] for name in body if name not in _STREAMING})
        async with self._answered("POST", data, JSON, seconds) as (response, known):
            require_type(response, JSON)
            text = await _whole(response, self._limits.body_bytes)
            return completion(text, known)

    async def stream(
        self, body: Mapping[str, Any], *, seconds: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield completion chunks as they arrive, without ``[DONE]``; raise UpstreamFailed."""
        data = _encoded({**body, "stream": True})
        async with self._answered("POST", data, EVENTS, seconds) as (response, known):
            require_type(response, EVENTS)
            line = _LINE.get()
            ending = Ending()
            async with contextlib.aclosing(self._events(response)) as events:
                async for event in events:
                    chunk = event_chunk(event, known)
                    if chunk is None:
                        await _drain(response)
                        break
                    ending.note(chunk)
                    yield chunk
                else:
                    ending.refuse_cut()
            await self._settle(line)

    @asynccontextmanager
    async def forward(self, body: bytes) -> AsyncGenerator[RawAnswer, None]:
        """Send a request as it is and give its answer as it comes, errors included.

        Of an error the key is taken out: servers like to repeat the one they refuse.
        """
        seconds = self.record.request_timeout_ms / 1000
        async with self._sent("POST", body, "*/*", seconds) as (response, known):
            chunks = self._pieces(response, _LINE.get())
            if response.status >= _FIRST_ERROR:
                chunks = masked_pieces(chunks, known)
            async with contextlib.aclosing(chunks):
                yield RawAnswer(response.status, kept_headers(response.headers), chunks)

    async def models(self) -> list[str]:
        """Return the names of its models, as it says itself; raise UpstreamFailed."""
        async with self._answered("GET", None, JSON, MODELS_SECONDS) as (response, known):
            require_type(response, JSON)
            text = await _whole(response, self._limits.models_bytes)
            return model_names(text, known)

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
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    # --- one request

    @asynccontextmanager
    async def _answered(
        self, method: str, body: bytes | None, accept: str, seconds: float
    ) -> AsyncGenerator[tuple[aiohttp.ClientResponse, frozenset[str]], None]:
        """Send a request whose answer must be a good one, and which is read by this class alone."""
        with self._failures():
            async with self._sent(method, body, accept, seconds) as (response, known):
                if response.status >= _FIRST_ERROR:
                    text = await _beginning(response, self._limits.error_bytes)
                    raise failure(response, text, known, now=self._clock.now())
                yield response, known

    @asynccontextmanager
    async def _sent(
        self, method: str, body: bytes | None, accept: str, seconds: float
    ) -> AsyncGenerator[tuple[aiohttp.ClientResponse, frozenset[str]], None]:
        """Send a request, once; the connection is closed unless its answer was read to the end."""
        self._busy += 1
        try:
            with self._failures():
                response, known = await self._requested(method, body, accept, seconds)
            try:
                self._heed(response)
                yield response, known
            except BaseException:
                response.close()  # at once: whoever leaves early must not leave a model at work
                raise
            finally:
                response.release()
        finally:
            self._busy -= 1
            if self._retired and not self._busy:
                await self.close()

    async def _requested(
        self, method: str, body: bytes | None, accept: str, seconds: float
    ) -> tuple[aiohttp.ClientResponse, frozenset[str]]:
        """Return the answer once its head is here."""
        session, route = await self._opened()
        own = {"Accept": accept, "Accept-Encoding": "identity"}
        if body is not None:
            own["Content-Type"] = JSON
        if self._hangs_up and accept != JSON:
            own["Connection"] = "close"
        total = min(seconds, self.record.request_timeout_ms / 1000)
        response = await session.request(
            method,
            route.models if method == "GET" else route.completions,
            data=body,
            headers={**route.headers, **own},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=max(total, 0.001), sock_connect=self.record.connect_timeout_ms / 1000
            ),
        )
        return response, route.known

    def _heed(self, response: aiohttp.ClientResponse) -> None:
        """Refuse redirects; after a refusal of the key, read it anew for the next request."""
        if _FIRST_REDIRECT <= response.status < _FIRST_ERROR:
            raise UpstreamFailed(
                f"it answers with a redirect (HTTP {response.status}), which is not followed; put "
                "the server's own address into base_url"
            ).of(self.name)
        if response.status in _REFUSED:
            self._route = None

    @contextlib.contextmanager
    def _failures(self) -> Generator[None, None, None]:
        """Raise what the network does as UpstreamFailed. No cause is chained: it may hold a key."""
        try:
            yield
        except TimeoutError as error:
            raise UpstreamFailed(_late(error), timed_out=True).of(self.name) from None
        except ServerUnavailable as error:
            raise UpstreamFailed(str(error)).of(self.name) from None
        except EventTooLarge as error:
            raise UpstreamFailed(f"it sent {error}").of(self.name) from None
        except aiohttp.ClientConnectorCertificateError:
            raise UpstreamFailed("its certificate is not one we trust").of(self.name) from None
        except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError) as error:
            raise UpstreamFailed(f"cannot be reached: {_reason(error)}").of(self.name) from None
        except (aiohttp.ClientError, OSError) as error:
            kind = type(error).__name__
            raise UpstreamFailed(f"it broke off the connection ({kind})").of(self.name) from None

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        reader = SseReader(self._limits.event_bytes)
        taken = 0
        async for piece in response.content.iter_any():
            taken += len(piece)
            if taken > self._limits.stream_bytes:
                raise UpstreamFailed(f"a stream of more than {self._limits.stream_bytes} bytes")
            for event in reader.feed(piece):
                yield event.data

    async def _pieces(
        self, response: aiohttp.ClientResponse, line: ResponseHandler | None
    ) -> AsyncGenerator[bytes, None]:
        with self._failures():
            async for piece in response.content.iter_any():
                yield piece
        if response.content_type == EVENTS:
            await self._settle(line)

    async def _settle(self, line: ResponseHandler | None) -> None:
        """See whether the server hangs up after a stream: the next request would run into that.

        llama.cpp does, having promised to keep the connection. The first time it is given a
        moment, later only the turn in which the end of the stream was read.
        """
        if line is not None:
            await SYSTEM_CLOCK.sleep(SETTLE_SECONDS if self._hangs_up is None else 0)
            self._hangs_up = self._hangs_up or not line.is_connected()

    # --- opening

    async def _opened(self) -> tuple[aiohttp.ClientSession, _Route]:
        async with self._opening:
            if self._route is None:
                self._route = await self._resolved()
            if self._session is None:
                self._session = self._new_session()
            return self._session, self._route

    async def _resolved(self) -> _Route:
        reading = Reading(self._rules, self._environ, self._secrets)
        url = parse_url(reading.text(self.record.base_url, "base_url"), "base_url")
        EgressRules(self._rules.egress).check_url(url, insecure=self.record.insecure)
        headers = {"User-Agent": f"bascule/{__version__}"}
        for name, text in self.record.headers.items():
            if name.lower() not in _OWNED:
                headers[name] = await _header(reading, name, text)
        if self.record.key_ref is not None:
            key = _one_line(await reading.credential(self.record.key_ref, "key_ref"), "key_ref")
            reading.remember(key, secret=True)
            if key:
                headers = {n: v for n, v in headers.items() if n.lower() != "authorization"}
                headers["Authorization"] = f"Bearer {key}"
        return _Route(
            _below(url, "chat", "completions"),
            _below(url, "models"),
            headers,
            frozenset(reading.known),
        )

    def _new_session(self) -> aiohttp.ClientSession:
        connector = _Connector(
            EgressRules(self._rules.egress),
            insecure=self.record.insecure,
            resolver=self._resolver,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            max_line_size=HEADER_LINE,
            max_field_size=HEADER_LINE,
            skip_auto_headers=("Accept-Encoding",),
        )


def _below(base: URL, *names: str) -> URL:
    """Return an address below the base, with the base's own query."""
    return base.joinpath(*names).with_query(base.query)


async def _header(reading: Reading, name: str, text: str) -> str:
    secret = names_a_credential(name.replace("-", "_")) or name.lower() in _CREDENTIALS
    value = _one_line(
        await reading.value(text, f"headers.{name}", secret=secret), f"headers.{name}"
    )
    if secret:
        reading.remember(value, secret=True)
    return value


def _one_line(value: str, field: str) -> str:
    text = value.strip()
    if _CONTROL.search(text):
        raise ServerUnavailable(f"{field}: holds a line break or another control character")
    return text


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return dumps(body)
    except StrictJsonError as error:
        raise UpstreamFailed(f"the request cannot be sent: {error}") from None


async def _whole(response: aiohttp.ClientResponse, limit: int) -> bytes:
    text = await _beginning(response, limit + 1)
    if len(text) > limit:
        raise UpstreamFailed(f"an answer of more than {limit} bytes")
    return text


async def _beginning(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return a body, or its first bytes where it is longer."""
    text = bytearray()
    async for piece in response.content.iter_any():
        text += piece
        if len(text) >= limit:
            break
    return bytes(text[:limit])


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read on to the end if that is near: a connection can be used again only from there."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            if await response.content.readany():
                response.close()  # more after the end: this connection is not to be trusted


def _late(error: TimeoutError) -> str:
    """Say what was waited for, and which settings bound the wait."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time; the record's connect_timeout_ms bounds the wait"
    return "no answer in time; the record's request_timeout_ms and chat.max_seconds bound the wait"


def _reason(error: aiohttp.ClientError) -> str:
    inner = getattr(error, "os_error", None)
    return getattr(inner, "strerror", None) or type(error).__name__
