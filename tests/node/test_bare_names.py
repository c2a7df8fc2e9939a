"""A bare name where a reference to a credential must stand."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from bascule.errors import ServerUnavailable
from bascule.model.secret_use import SecretUse, server_use
from bascule.model.server import Auth, Http, ServerRecord
from bascule.node.pool.transport.upstream import Upstream, open_upstream
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules

TOKEN = "glpat-0123456789abcdef"  # pragma: allowlist secret


class Vault:
    """Secrets in a dictionary."""

    async def secret(self, name: str, use: SecretUse) -> str:
        del use
        return {"token": TOKEN}[name]


async def opened(http: Http, told: list[Set[str]] | None = None) -> Upstream:
    record = ServerRecord(server_id="r", transport="streamable_http", http=http)
    known = [] if told is None else told
    return await open_upstream(
        record,
        Reading(NodeRules(), {}, Vault(), server_use(record)),
        learned=lambda credentials, _read: known.append(credentials),
    )


async def refusal(http: Http) -> ServerUnavailable:
    with pytest.raises(ServerUnavailable) as caught:
        await opened(http)
    return caught.value


@pytest.mark.requirement("references:bare-name")
@pytest.mark.parametrize("kind", ["auth_ref", "bearer", "header"])
async def test_a_bare_name_is_that_of_a_secret(kind: Any):
    http = Http(url="https://a.example", auth_ref="token")
    if kind != "auth_ref":
        http = Http(url="https://a.example", auth=Auth(type=kind, ref="token", header="X-Api-Key"))
    told: list[Set[str]] = []
    upstream = await opened(http, told)
    assert TOKEN in "".join((await upstream.headers()).values())
    assert told == [{TOKEN}]
    await upstream.close()


@pytest.mark.requirement("references:bare-name")
async def test_a_bare_name_is_never_sent_itself():
    for http in (
        Http(url="https://a.example", auth_ref="github-token"),
        Http(url="https://a.example", auth=Auth(ref="github-token")),
        Http(url="https://a.example", auth=Auth(type="header", header="X", ref="github-token")),
    ):
        fault = await refusal(http)
        assert "there is no secret named 'github-token'" in str(fault)
        assert fault.reason == "env_missing"


@pytest.mark.parametrize("text", [TOKEN, f"Bearer {TOKEN}", "vault://token", "two words", "$$"])
async def test_a_literal_in_the_place_of_a_reference_is_neither_sent_nor_repeated(text: str):
    fault = await refusal(Http(url="https://a.example", auth_ref=text))
    assert str(fault).startswith("http.auth_ref: must be a reference")
    assert text not in str(fault).partition(";")[0]
