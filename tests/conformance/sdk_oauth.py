"""Signing in with the official SDK's OAuth client: discovery, registration, consent, refresh.

The SDK decides what to ask and judges the answers. The product offers no sign-in by a person; this
stands in for one, so that the scenarios of the suite that need it can be played.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TypeAlias

import httpx2
from mcp.client.auth import OAuthClientProvider

from bascule.errors import BasculeError, ServerUnavailable
from bascule.outbound.credentials import (
    AUTHORIZATION,
    Challenge,
    Credentials,
)
from bascule.wire.era import MODERN
from bascule.wire.http_headers import PROTOCOL_VERSION

#: Makes the SDK's provider for a URL, with storage and consent as its user wants them.
MakeProvider: TypeAlias = Callable[[str], OAuthClientProvider]
_Flow: TypeAlias = AsyncGenerator[httpx2.Request, httpx2.Response]


def sdk_sign_in(make: MakeProvider) -> Callable[[str], Credentials]:
    """Return what makes the credential for a URL."""
    return lambda url: SdkOAuth(make(url), url)


class SdkOAuth:
    """A credential that the SDK's provider obtains and renews, one flow at a time."""

    def __init__(self, provider: OAuthClientProvider, url: str) -> None:
        self._provider = provider
        self._url = url
        self._client = httpx2.AsyncClient()
        self._headers: Mapping[str, str] = {}
        self._asked = False
        self._one = asyncio.Lock()

    def __repr__(self) -> str:
        return f"SdkOAuth({self._url!r})"

    def at_hand(self) -> Mapping[str, str] | None:
        return None if self._must_ask() else self._headers

    async def headers(self) -> Mapping[str, str]:
        """Return the current token, refreshed when it has run out; none before the first login."""
        if self._must_ask():
            async with self._one:
                if self._must_ask():
                    await self._flow({PROTOCOL_VERSION: MODERN}, None)
                    self._asked = True
        return self._headers

    async def refused(
        self, used: Mapping[str, str] | None = None, challenge: Challenge | None = None
    ) -> bool:
        """Sign in, or ask for the missing scope, once for all who were refused together."""
        if challenge is None:
            return False
        used = {} if used is None else used
        async with self._one:
            if used.get(AUTHORIZATION) != self._headers.get(AUTHORIZATION):
                return True
            return await self._flow(used, challenge)

    async def close(self) -> None:
        """Nothing is under way that is not awaited by its caller."""
        await self._client.aclose()

    def _must_ask(self) -> bool:
        """Say whether stored tokens are to be read, or the one in use has run out."""
        context = self._provider.context
        return not self._asked or (
            bool(self._headers) and not context.is_token_valid() and context.can_refresh_token()
        )

    async def _flow(self, used: Mapping[str, str], challenge: Challenge | None) -> bool:
        """Go through the provider's flow; return whether it ends with the request sent anew."""
        request = httpx2.Request("POST", self._url, headers=_plain(used))
        try:
            async with aclosing(self._provider.async_auth_flow(request)) as flow:
                await self._until(flow, request, await anext(flow))
                if challenge is not None:
                    answer = httpx2.Response(
                        challenge.status, headers=_plain(challenge.headers), request=request
                    )
                    await self._until(flow, request, await flow.asend(answer))
        except StopAsyncIteration:
            return False
        except BasculeError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK and its user's handlers may raise all
            words = f"{type(error).__name__}: {str(error)[:200]}"
            raise ServerUnavailable(f"signing in failed: {words}") from None
        self._keep(request)
        return True

    async def _until(self, flow: _Flow, request: httpx2.Request, asked: httpx2.Request) -> None:
        """Fetch what the flow asks for until it comes back to the request itself."""
        while asked is not request:
            asked = await flow.asend(await self._client.send(asked))

    def _keep(self, request: httpx2.Request) -> None:
        """Take the token, if there is one."""
        found = request.headers.get(AUTHORIZATION)
        self._headers = {} if found is None else {AUTHORIZATION: found}


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers that describe a message, without those that describe its bytes."""
    bodily = {"content-length", "content-encoding", "transfer-encoding"}
    return {name: text for name, text in headers.items() if name.lower() not in bodily}
