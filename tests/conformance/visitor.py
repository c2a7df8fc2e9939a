"""Somebody who signs in wherever a scenario asks: consent is a GET, followed by nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from bascule.outbound.credentials import Credentials
from tests.conformance.sdk_oauth import sdk_sign_in

CALLBACK = AnyUrl("http://localhost:3000/callback")
METADATA_URL = "https://conformance-test.local/client-metadata.json"  # the suite expects this one


class Memory:
    """Tokens and registrations, for as long as the program runs."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """Opens the page of consent, and reads the answer off the redirect without following it."""

    def __init__(self) -> None:
        self._answer: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            page = await client.get(url)
        self._answer = parse_qs(urlsplit(page.headers["Location"]).query)

    async def answer(self) -> AuthorizationCodeResult:
        given = {key: values[0] for key, values in self._answer.items()}
        return AuthorizationCodeResult(
            code=given["code"], state=given.get("state"), iss=given.get("iss")
        )


def visitor(context: Mapping[str, Any]) -> Callable[[str], Credentials]:
    """Return a way to sign in as the scenario's client, or as one that registers itself."""

    def provider(url: str) -> OAuthClientProvider:
        browser = Browser()
        return OAuthClientProvider(
            url,
            OAuthClientMetadata(
                client_name="bascule",
                redirect_uris=[CALLBACK],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
            ),
            Memory(known_client(context)),
            redirect_handler=browser.open,
            callback_handler=browser.answer,
            client_metadata_url=METADATA_URL,
        )

    return sdk_sign_in(provider)


def known_client(context: Mapping[str, Any]) -> OAuthClientInformationFull | None:
    """Return the client that was registered beforehand, if the scenario names one."""
    if "client_id" not in context:
        return None
    secret = context.get("client_secret")
    return OAuthClientInformationFull(
        client_id=context["client_id"],
        client_secret=secret,
        redirect_uris=[CALLBACK],
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
    )
