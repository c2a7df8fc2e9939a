"""What proves who we are: bearer tokens, headers, and OAuth tokens that are kept valid."""

from __future__ import annotations

import asyncio
import gzip
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, Set

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.secret_use import server_use
from bascule.model.server import Auth, Http, ServerRecord
from bascule.node.pool.transport.upstream import Upstream, open_upstream
from bascule.outbound.credentials import (
    ClientCredentials,
    FixedHeaders,
    HttpTokenEndpoint,
    OAuthClient,
    TokenEndpoint,
    TokenReply,
    bearer,
    resolve_login,
    token_text,
)
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import HttpClient, HttpOptions
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url
from bascule.server import Server
from bascule.testing.clock import FakeClock
from tests.waits import SOON_SECONDS

SECRET = "s3cr3t-of-the-client"  # pragma: allowlist secret
CLIENT = OAuthClient("agent", SECRET, ("tools.read", "tools.write"))


class Tokens:
    """A token endpoint that gives t1, t2, ... or what it is told, perhaps only when let."""

    name = "https://login.example.com"

    def __init__(self, **content: object) -> None:
        self.content: dict[str, object] = {"token_type": "Bearer", "expires_in": 100} | content
        self.replies: list[TokenReply] = []
        self.forms: list[Mapping[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def post(self, form: Mapping[str, str], headers: Mapping[str, str]) -> TokenReply:
        self.forms.append(form)
        self.headers.append(headers)
        number = len(self.forms)
        await self.open.wait()
        if self.replies:
            return self.replies.pop(0)
        return TokenReply(200, orjson.dumps({"access_token": f"t{number}"} | self.content))

    async def close(self) -> None:
        pass

    @property
    def asked(self) -> int:
        return len(self.forms)


def refusal(status: int, **content: str) -> TokenReply:
    return TokenReply(status, orjson.dumps(content))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def logged_in(tokens: Tokens, clock: FakeClock) -> ClientCredentials:
    return ClientCredentials(CLIENT, tokens, clock=clock)


def nowhere(_url: Url) -> TokenEndpoint:
    raise NotImplementedError


async def token(credentials: ClientCredentials) -> str:
    async with asyncio.timeout(SOON_SECONDS):
        return (await credentials.headers())["Authorization"]


# Fixed credentials


@pytest.mark.requirement("record:http:auth-ref-means-bearer")
async def test_an_auth_ref_alone_is_a_bearer_token():
    record = Server.http("docs", "https://docs.example/mcp", auth_ref="${ENV:DOCS_TOKEN}")
    assert record.http is not None
    reading = Reading(NodeRules(), {"DOCS_TOKEN": "abc.DEF-1"}, None, server_use(record))
    login = await resolve_login(record.http, reading, nowhere, FakeClock())
    assert await login.headers() == {"Authorization": "Bearer abc.DEF-1"}


@pytest.mark.requirement("transport:auth:bearer")
@pytest.mark.parametrize(
    "value",
    ["abc.DEF-1", " abc.DEF-1\n", "Bearer abc.DEF-1", "bearer  abc.DEF-1", "BEARER abc.DEF-1"],
)
async def test_a_bearer_token_is_prefixed_exactly_once(value: str):
    assert await bearer(value).headers() == {"Authorization": "Bearer abc.DEF-1"}
    assert token_text(value, "http.auth_ref") == "abc.DEF-1"


@pytest.mark.parametrize("value", ["", "  ", "Bearer", "Bearer ", "a\r\nX-Evil: 1", "a b", "ä"])
def test_what_no_header_can_carry_is_no_token(value: str):
    with pytest.raises(ServerUnavailable, match=r"^http\.auth_ref: ") as caught:
        token_text(value, "http.auth_ref")
    assert "Evil" not in str(caught.value)


async def test_a_fixed_credential_that_is_refused_is_not_worth_another_try():
    assert not await bearer("abc").refused()
    assert not await FixedHeaders().refused({})
    assert await FixedHeaders().headers() == {}


# OAuth client credentials


@pytest.mark.requirement("transport:auth:oauth")
async def test_a_token_is_fetched_once_and_kept(clock: FakeClock):
    tokens = Tokens()
    credentials = logged_in(tokens, clock)
    assert [await token(credentials) for _ in range(3)] == ["Bearer t1"] * 3
    assert tokens.forms == [{"grant_type": "client_credentials", "scope": "tools.read tools.write"}]


async def test_without_scopes_none_are_asked_for(clock: FakeClock):
    tokens = Tokens()
    await token(ClientCredentials(OAuthClient("agent", SECRET), tokens, clock=clock))
    assert tokens.forms == [{"grant_type": "client_credentials"}]


async def test_the_client_is_named_in_a_basic_header_form_encoded(clock: FakeClock):
    tokens = Tokens()
    await token(ClientCredentials(OAuthClient("a:b", "c d/é"), tokens, clock=clock))
    scheme, _, encoded = tokens.headers[0]["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert b64decode(encoded) == b"a%3Ab:c+d%2F%C3%A9"


@pytest.mark.parametrize(
    "reply", [refusal(401, error="invalid_client"), refusal(400, error="invalid_request")]
)
async def test_an_endpoint_that_wants_the_client_in_the_body_gets_it_there_ever_after(
    clock: FakeClock, reply: TokenReply
):
    tokens = Tokens()
    tokens.replies = [reply]
    credentials = logged_in(tokens, clock)
    assert await token(credentials) == "Bearer t2"
    await clock.advance(100)
    assert await token(credentials) == "Bearer t3"
    assert "client_secret" not in tokens.forms[0]
    for form, headers in zip(tokens.forms[1:], tokens.headers[1:], strict=True):
        assert (form["client_id"], form["client_secret"]) == ("agent", SECRET)
        assert headers == {}


async def test_a_client_that_is_refused_both_ways_fails_after_two_requests(clock: FakeClock):
    tokens = Tokens()
    tokens.replies = [refusal(401, error="invalid_client", error_description=SECRET)] * 2
    with pytest.raises(ServerUnavailable) as caught:
        await token(logged_in(tokens, clock))
    assert str(caught.value) == (
        "the token endpoint https://login.example.com gives no token: HTTP 401 invalid_client"
    )
    assert tokens.asked == 2


async def test_another_refusal_is_not_tried_the_other_way(clock: FakeClock):
    tokens = Tokens()
    tokens.replies = [refusal(400, error="invalid_scope")]
    with pytest.raises(ServerUnavailable, match="HTTP 400 invalid_scope"):
        await token(logged_in(tokens, clock))
    assert tokens.asked == 1


@pytest.mark.requirement("transport:auth:oauth")
async def test_a_token_is_renewed_early_while_calls_go_on_with_the_old_one(clock: FakeClock):
    tokens = Tokens(expires_in=100)
    credentials = logged_in(tokens, clock)
    await token(credentials)
    await clock.advance(79.9)
    assert (await token(credentials), tokens.asked) == ("Bearer t1", 1)
    await clock.advance(0.1)
    tokens.open.clear()
    assert await token(credentials) == "Bearer t1"
    assert await token(credentials) == "Bearer t1"
    await clock.settle()
    assert tokens.asked == 2
    tokens.open.set()
    await clock.settle()
    assert (await token(credentials), tokens.asked) == ("Bearer t2", 2)


@pytest.mark.parametrize("expires_in", [None, "soon", True, "inf", [1]])
async def test_a_token_that_does_not_say_how_long_lasts_an_hour(
    clock: FakeClock, expires_in: object
):
    tokens = Tokens(expires_in=expires_in)
    credentials = logged_in(tokens, clock)
    await token(credentials)
    await clock.advance(2879)
    assert (await token(credentials), tokens.asked) == ("Bearer t1", 1)
    await clock.advance(721)
    assert (await token(credentials), tokens.asked) == ("Bearer t2", 2)


@pytest.mark.parametrize(("expires_in", "lasts"), [("50", 50), (50.0, 50), (0, 0), (-5, 0)])
async def test_a_lifetime_may_be_text_and_may_be_nothing(
    clock: FakeClock, expires_in: object, lasts: float
):
    tokens = Tokens(expires_in=expires_in)
    credentials = logged_in(tokens, clock)
    assert await token(credentials) == "Bearer t1"
    await clock.advance(lasts)
    assert await token(credentials) == "Bearer t2"


async def test_a_renewal_that_fails_leaves_the_valid_token_in_use_until_it_ends(clock: FakeClock):
    tokens = Tokens(expires_in=1000)
    credentials = logged_in(tokens, clock)
    await token(credentials)
    tokens.replies = [refusal(503)] * 3
    await clock.advance(800)
    assert await token(credentials) == "Bearer t1"
    await clock.settle()
    assert (await token(credentials), tokens.asked) == ("Bearer t1", 2)
    await clock.advance(30)  # it is not asked again at every call, but it is asked again
    assert await token(credentials) == "Bearer t1"
    await clock.settle()
    assert tokens.asked == 3
    await clock.advance(170)
    with pytest.raises(ServerUnavailable, match="HTTP 503"):
        await token(credentials)
    assert await token(credentials) == "Bearer t5"


async def test_many_who_ask_at_once_make_one_request(clock: FakeClock):
    tokens = Tokens()
    tokens.open.clear()
    credentials = logged_in(tokens, clock)
    async with asyncio.timeout(SOON_SECONDS):
        callers = [asyncio.create_task(token(credentials)) for _ in range(50)]
        await clock.settle()
        callers[0].cancel()
        await clock.settle()
        tokens.open.set()
        results = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == ["Bearer t1"] * 49
    assert tokens.asked == 1


async def test_many_who_were_refused_at_once_make_one_renewal(clock: FakeClock):
    tokens = Tokens()
    credentials = logged_in(tokens, clock)
    used = await credentials.headers()
    async with asyncio.timeout(SOON_SECONDS):
        verdicts = await asyncio.gather(*(credentials.refused(used) for _ in range(50)))
    assert verdicts == [True] * 50
    assert await credentials.refused(used)  # a straggler: the token has changed since
    assert (await token(credentials), tokens.asked) == ("Bearer t2", 2)


async def test_a_fresh_token_that_is_refused_too_is_not_renewed_again_at_once(clock: FakeClock):
    tokens = Tokens()
    credentials = logged_in(tokens, clock)
    assert await credentials.refused(await credentials.headers())
    assert not await credentials.refused(await credentials.headers())
    assert tokens.asked == 2
    await clock.advance(5)
    assert await credentials.refused(await credentials.headers())
    assert tokens.asked == 3


async def test_a_refused_token_that_cannot_be_renewed_is_not_worth_another_try(clock: FakeClock):
    tokens = Tokens()
    credentials = logged_in(tokens, clock)
    used = await credentials.headers()
    tokens.replies = [refusal(503)]
    assert not await credentials.refused(used)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"access_token": 1}',
        b'{"access_token": ""}',
        b'{"access_token": "a\\r\\nX-Evil: 1"}',
        b'{"access_token": "a", "access_token": "b"}',
    ],
)
async def test_an_answer_without_a_usable_token_is_refused(clock: FakeClock, body: bytes):
    tokens = Tokens()
    tokens.replies = [TokenReply(200, body)]
    with pytest.raises(ServerUnavailable, match=r"gives no access_token$"):
        await token(logged_in(tokens, clock))


async def test_a_token_of_another_type_is_refused(clock: FakeClock):
    with pytest.raises(ServerUnavailable, match="not bearer tokens"):
        await token(logged_in(Tokens(token_type="DPoP"), clock))


async def test_closing_ends_a_request_and_tells_who_waits(clock: FakeClock):
    tokens = Tokens()
    tokens.open.clear()
    credentials = logged_in(tokens, clock)
    waiting = asyncio.create_task(token(credentials))
    await clock.settle()
    async with asyncio.timeout(SOON_SECONDS):
        await credentials.close()
        with pytest.raises(ServerUnavailable, match="closed"):
            await waiting


async def test_nothing_shows_a_token_or_a_secret(clock: FakeClock):
    credentials = logged_in(Tokens(access_token="tok-12345678"), clock)
    await token(credentials)
    shown = f"{credentials!r} {CLIENT!r} {bearer('tok-12345678')!r}"
    shown += repr(TokenReply(200, b"tok-12345678"))
    assert SECRET not in shown
    assert "tok-12345678" not in shown


# Over the wire


class Login:
    """A real token endpoint, and the requests it had."""

    def __init__(self, server: BaseTestServer) -> None:
        self.server = server
        self.requests: list[tuple[Mapping[str, str], Mapping[str, str]]] = []
        self.learned: set[str] = set()

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append((request.headers.copy(), form))
        number = len(self.requests)
        return web.json_response({"access_token": f"tok-{number:08}", "expires_in": 60})

    async def moved(self, _request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/token"})

    async def stolen(self, _request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "https://evil.example/token"})

    async def endless(self, _request: web.Request) -> web.Response:
        body = gzip.compress(b" " * 10_000_000)
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async def silent(self, _request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise NotImplementedError

    async def upstream(self, path: str, clock: FakeClock, **more: str) -> Upstream:
        auth = Auth(
            type="oauth_client_credentials",
            ref="${CLIENT_SECRET}",
            token_url=more.get("token_url", str(self.server.make_url(path))),
            client_id="agent",
            scopes=("a", "b"),
        )
        http = Http(url="https://mcp.example.com/mcp", headers={"X-Team": "blue"}, auth=auth)
        record = ServerRecord(server_id="r", transport="streamable_http", http=http)
        reading = Reading(NodeRules(), {"CLIENT_SECRET": SECRET}, None, server_use(record))
        return await open_upstream(record, reading, clock, self._learn)

    def _learn(self, known: Set[str], read: Set[str]) -> None:
        assert known <= read
        self.learned |= known


@pytest.fixture
async def login() -> AsyncIterator[Login]:
    app = web.Application()
    server = TestServer(app, host="127.0.0.1")
    login = Login(server)
    for name in ("token", "moved", "stolen", "endless", "silent"):
        app.router.add_post(f"/{name}", getattr(login, name))
    async with server:
        yield login


@pytest.mark.requirement("transport:auth:oauth")
@pytest.mark.parametrize("path", ["/token", "/moved"])
async def test_a_token_is_fetched_over_http_and_masked(login: Login, clock: FakeClock, path: str):
    upstream = await login.upstream(path, clock)
    try:
        assert login.learned == {SECRET}
        assert dict(await upstream.headers()) == {
            "X-Team": "blue",
            "Authorization": "Bearer tok-00000001",
        }
        assert await upstream.refused(await upstream.headers())
        assert (await upstream.headers())["Authorization"] == "Bearer tok-00000002"
        assert login.learned == {SECRET, "tok-00000001", "tok-00000002"}
    finally:
        await upstream.close()
    headers, form = login.requests[0]
    assert form == {"grant_type": "client_credentials", "scope": "a b"}
    assert headers["Authorization"].startswith("Basic ")
    assert "X-Team" not in headers  # the record's headers belong to its server


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/stolen", "redirects to another origin"),
        ("/endless", "over the limit of 65536 bytes"),
        ("/nothing", "gives no token: HTTP 404"),
    ],
)
async def test_a_token_endpoint_that_misbehaves_fails_clearly(
    login: Login, clock: FakeClock, path: str, complaint: str
):
    upstream = await login.upstream(path, clock)
    try:
        with pytest.raises(ServerUnavailable, match=complaint) as caught:
            await upstream.headers()
        assert SECRET not in str(caught.value)
    finally:
        await upstream.close()
    assert login.requests == []


def endpoint_at(url: Url, seconds: float = 5) -> HttpTokenEndpoint:
    client = HttpClient(HttpOptions(connect_seconds=5, egress=EgressRules()))
    return HttpTokenEndpoint(client, url, seconds=seconds)


async def test_a_token_endpoint_that_does_not_answer_is_given_up(login: Login):
    endpoint = endpoint_at(Url.parse(str(login.server.make_url("/silent"))), seconds=0.05)
    with pytest.raises(ServerUnavailable, match=r"did not answer in 0\.05 s"):
        await endpoint.post({}, {})
    await endpoint.close()


async def test_a_token_endpoint_that_is_not_there_is_named(clock: FakeClock):
    endpoint = endpoint_at(Url.parse("http://127.0.0.1:1/token"))
    credentials = ClientCredentials(CLIENT, endpoint, clock=clock)
    with pytest.raises(ServerUnavailable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        await token(credentials)
    await credentials.close()


@pytest.mark.parametrize("url", ["https://10.1.2.3/token", "http://login.example.com/token"])
async def test_a_token_endpoint_is_under_the_same_egress_rules(
    login: Login, clock: FakeClock, url: str
):
    with pytest.raises(LaunchDenied):
        await login.upstream("", clock, token_url=url)
