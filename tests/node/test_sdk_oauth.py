"""Signing in with the official SDK's OAuth client, over requests that are ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.node.pool.transport.credentials import (
    Challenge,
    Credentials,
    Fetched,
    FixedHeaders,
    SignInSite,
)
from bascule.node.pool.transport.sdk_oauth import SdkOAuth, sdk_sign_in
from bascule.node.pool.transport.upstream import open_upstream
from bascule.node.rules import NodeRules
from bascule.server import Server

SERVER = "https://mcp.example.com/mcp"
LOGIN = "https://login.example.com"
UNKNOWN = Challenge(401, {"WWW-Authenticate": "Bearer"})
CALLBACK = AnyUrl("http://localhost:3000/callback")


class Authority:
    """An authorisation server behind ``Fetch``: it gives the tokens t1, t2, ..."""

    def __init__(self, **token: Any) -> None:
        self.token: dict[str, Any] = {"token_type": "Bearer", "expires_in": 3600} | token
        self.asked: list[str] = []
        self.grants: list[str] = []
        self.token_status = 200
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Fetched:
        del headers
        path = urlsplit(url).path
        self.asked.append(f"{method} {path}")
        await self.open.wait()
        if path == "/token":
            return self._token(parse_qs(body.decode()))
        answer = {
            "/.well-known/oauth-protected-resource/mcp": {
                "resource": SERVER,
                "authorization_servers": [LOGIN],
            },
            "/.well-known/oauth-authorization-server": {
                "issuer": LOGIN,
                "authorization_endpoint": f"{LOGIN}/authorize",
                "token_endpoint": f"{LOGIN}/token",
                "registration_endpoint": f"{LOGIN}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            },
            "/register": {"client_id": "me", "redirect_uris": [str(CALLBACK)]},
        }.get(path)
        found = 201 if path == "/register" else 200
        return _json(404 if answer is None else found, answer or {})

    def _token(self, form: Mapping[str, list[str]]) -> Fetched:
        self.grants += form["grant_type"]
        if self.token_status != 200:
            return _json(self.token_status, {"error": "invalid_grant"})
        given = f"t{len(self.grants)}"
        return _json(200, {"access_token": given, "refresh_token": f"r-{given}"} | self.token)


def _json(status: int, content: Any) -> Fetched:
    return Fetched(status, {"Content-Type": "application/json"}, json.dumps(content).encode())


class Storage:
    """What an earlier run left, and what this one leaves."""

    def __init__(self, tokens: OAuthToken | None = None) -> None:
        self.tokens = tokens
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Consent:
    """Somebody who agrees, and the scopes that were asked for."""

    def __init__(self) -> None:
        self.scopes: list[str | None] = []
        self._state = ""
        self.trouble: Exception | None = None

    async def open(self, url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        self._state = query["state"][0]
        self.scopes.append(query.get("scope", [None])[0])
        if self.trouble is not None:
            raise self.trouble

    async def answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code="c0de", state=self._state)


class Visit:
    """A credential joined to an authority, a person and a memory."""

    def __init__(self, authority: Authority, storage: Storage | None = None) -> None:
        self.authority = authority
        self.consent = Consent()
        self.learned: list[str] = []
        self.storage = storage or Storage()
        site = SignInSite("docs", SERVER, authority, self.learned.append)
        made = sdk_sign_in(self._provider)(site)
        assert isinstance(made, SdkOAuth)
        self.credentials = made

    def _provider(self, site: SignInSite) -> OAuthClientProvider:
        return OAuthClientProvider(
            site.url,
            OAuthClientMetadata(redirect_uris=[CALLBACK], grant_types=["authorization_code"]),
            self.storage,
            redirect_handler=self.consent.open,
            callback_handler=self.consent.answer,
        )

    async def refused(self, challenge: Challenge = UNKNOWN) -> bool:
        return await self.credentials.refused(await self.credentials.headers(), challenge)


@pytest.mark.requirement("transport:auth:oauth")
async def test_the_first_refusal_signs_in_and_the_token_is_masked():
    visit = Visit(Authority())
    assert await visit.credentials.headers() == {}
    assert await visit.refused()
    assert await visit.credentials.headers() == {"Authorization": "Bearer t1"}
    assert visit.learned == ["r-t1", "t1"]
    assert visit.authority.asked == [
        "GET /.well-known/oauth-protected-resource/mcp",
        "GET /.well-known/oauth-authorization-server",
        "POST /register",
        "POST /token",
    ]


async def test_calls_that_are_refused_together_sign_in_once():
    visit = Visit(Authority())
    visit.authority.open.clear()
    used = await visit.credentials.headers()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        refused = [group.create_task(visit.credentials.refused(used, UNKNOWN)) for _ in range(20)]
        await asyncio.wait(refused, timeout=0)
        visit.authority.open.set()
    assert all(task.result() for task in refused)
    assert visit.authority.grants == ["authorization_code"]


async def test_one_who_gives_up_does_not_keep_others_from_signing_in():
    visit = Visit(Authority())
    visit.authority.open.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await visit.refused()
    visit.authority.open.set()
    async with asyncio.timeout(5):
        assert await visit.refused()
    assert await visit.credentials.headers() == {"Authorization": "Bearer t1"}


async def test_a_missing_scope_is_asked_for_in_addition():
    visit = Visit(Authority())
    first = Challenge(401, {"WWW-Authenticate": 'Bearer scope="read"'})
    more = Challenge(403, {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write"'})
    assert await visit.refused(first)
    assert await visit.refused(more)
    assert visit.consent.scopes == ["read", "read write"]
    assert await visit.credentials.headers() == {"Authorization": "Bearer t2"}


async def test_a_403_for_another_reason_is_not_answered():
    visit = Visit(Authority())
    assert await visit.refused()
    assert not await visit.refused(Challenge(403, {}))
    assert visit.authority.grants == ["authorization_code"]


async def test_a_token_that_ran_out_is_refreshed_before_it_is_used():
    visit = Visit(Authority(expires_in=-1))
    assert await visit.refused()
    visit.authority.token["expires_in"] = 3600
    assert await visit.credentials.headers() == {"Authorization": "Bearer t2"}
    assert visit.authority.grants == ["authorization_code", "refresh_token"]
    assert await visit.credentials.headers() == {"Authorization": "Bearer t2"}
    assert len(visit.authority.grants) == 2


async def test_a_token_kept_from_an_earlier_run_is_used_at_once():
    visit = Visit(Authority(), Storage(OAuthToken(access_token="kept")))
    assert await visit.credentials.headers() == {"Authorization": "Bearer kept"}
    assert visit.learned == ["kept"]
    assert not visit.authority.asked


@pytest.mark.parametrize("broken", ["consent", "token"])
async def test_a_sign_in_that_fails_says_so_and_leaves_no_token(broken: str):
    visit = Visit(Authority())
    if broken == "consent":
        visit.consent.trouble = KeyError("nobody is there")
    else:
        visit.authority.token_status = 400
    with pytest.raises(ServerUnavailable, match="signing in failed: "):
        await visit.refused()
    assert await visit.credentials.headers() == {}
    assert not visit.learned


@pytest.mark.requirement("transport:egress:private")
async def test_where_to_sign_in_is_under_the_nodes_egress_rules():
    sites: list[SignInSite] = []

    def note(site: SignInSite) -> Credentials | None:
        sites.append(site)
        return None

    record = Server.http("docs", "http://127.0.0.1:9/mcp", insecure=True)
    upstream = await open_upstream(record, NodeRules(), environ={}, sign_in=note)
    try:
        for address in ("169.254.169.254", "10.0.0.1"):
            with pytest.raises(LaunchDenied, match="does not connect"):
                await sites[0].fetch("GET", f"https://{address}/token", {}, b"")
        with pytest.raises(LaunchDenied, match="plain http"):
            await sites[0].fetch("POST", "http://login.example.com/token", {}, b"secret")
        with pytest.raises(ServerUnavailable, match=r"signing in: .* cannot be reached"):
            await sites[0].fetch("GET", "http://127.0.0.1:9/token", {}, b"")
    finally:
        await upstream.close()


async def test_a_record_with_a_credential_of_its_own_never_signs_in():
    def refuse(site: SignInSite) -> Credentials | None:
        raise AssertionError(site)

    record = Server.http("docs", SERVER, auth_ref="${ENV:TOKEN}")
    environ = {"TOKEN": "abc"}
    upstream = await open_upstream(
        record, NodeRules(variables=("*",)), environ=environ, sign_in=refuse
    )
    try:
        assert (await upstream.headers())["Authorization"] == "Bearer abc"
    finally:
        await upstream.close()


async def test_fixed_headers_have_nothing_to_say_to_a_challenge():
    assert not await FixedHeaders().refused({}, UNKNOWN)
