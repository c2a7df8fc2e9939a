"""``bascule up`` at an address of the network: it answers there, and asks for a code."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from bascule.app.settings import ServerSettings
from bascule.wire.api.addresses import TOKENS
from tests.flow.up_process import Up, run, serving


def address() -> str:
    """Return an address under which other machines know this one; without a network, all of its."""
    known = [
        one.address
        for card in psutil.net_if_addrs().values()
        for one in card
        if one.family == socket.AF_INET
    ]
    return next((one for one in known if not ip_address(one).is_loopback), "0.0.0.0")  # noqa: S104


async def printed(up: Up, *words: str) -> str:
    """Return what ``bascule web`` prints."""
    code, out, err = await run("web", *words, "--data-dir", str(up.data))
    assert code == 0, err
    return out.strip()


async def signed_in(up: Up) -> str:
    """Open the page with a link, as a browser does."""
    up.url, _, code = (await printed(up)).partition("/admin/#code=")
    status, answer = await up.ask("POST", "/admin/api/login", body={"code": code})
    assert status == 200, answer
    return answer["token"]


async def make_token(up: Up, page: str, code: str | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {page}"}
    if code is not None:
        headers["X-Bascule-Confirm"] = code
    async with up.http.post(up.url + TOKENS, headers=headers, json={"role": "viewer"}) as answer:
        return answer.status, await answer.json()


@pytest.mark.requirement("admin:confirm")
async def test_at_an_address_of_the_network_a_code_confirms_for_one_page_alone(tmp_path: Path):
    options = ("--empty", "--host", address(), "--insecure")
    async with serving(tmp_path / "data", *options) as up:
        page, other = await signed_in(up), await signed_in(up)
        status, refused = await make_token(up, page)
        assert (status, refused["error"]["code"]) == (403, "confirmation_required")
        assert refused["error"]["details"]["command"] == "bascule web --confirm"
        code = await printed(up, "--confirm")
        assert (await make_token(up, page, code))[0] == 201
        status, refused = await make_token(up, other, code)
        assert (status, refused["error"]["code"]) == (403, "confirmation_required")
        assert (await make_token(up, other, await printed(up, "--confirm")))[0] == 201


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("10.0.0.1", ("10.0.0.1", "a.example")),
        ("fd00::1", ("[fd00::1]", "a.example")),
        ("b.example", ("b.example", "a.example")),
        ("0.0.0.0", ("a.example",)),  # noqa: S104 - nothing is bound
        ("::", ("a.example",)),
    ],
)
def test_what_it_listens_on_is_a_name_that_it_answers_to(host: str, names: tuple[str, ...]):
    assert ServerSettings(host=host, hosts=("a.example",)).names == names
