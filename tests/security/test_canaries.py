"""What servers and backends are given comes out nowhere, whatever they do with it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from base64 import b64encode
from contextlib import closing
from pathlib import Path

import pytest

from bascule.db.sqlite import backup
from bascule.testing.upstream import calls, fails, says, sends
from tests.flow.up_process import start
from tests.scale import scaled
from tests.security.canaries import CONTROL, Search, canary_value, said
from tests.security.canary_site import ADMIN, SECRETS, CanarySite, Outputs, canary_site
from tests.waits import SOON_SECONDS

pytestmark = pytest.mark.timeout(600)
#: Where nobody chooses a word: what stands there by right instead of the control.
FIXED = {
    "/healthz": b"status",
    "/readyz": b"status",
    "/openapi.json": b"openapi",
    "file ledger.anchors": b"key_id",
    "file others": b"bsc_",  # the setup token, which belongs there
}


async def gathered(folder: Path, log_form: str) -> tuple[Outputs, Search]:
    """Have everything go right and wrong, at level debug; gather all that can be read."""
    async with canary_site(folder, scaled(1_000), log_form) as site:
        await site.give()
        await site.enter()
        async with site.watching():
            await use(site)
            await site.read_all()
            await fail(site)
            await site.read_all()
        site.read_processes()
        site.read_files()
    with closing(sqlite3.connect(site.up.data / "secrets.db")) as store:
        backup(store, site.up.data / "secrets.db.form-0")
    site.read_files()
    await start_with_another_key(site)
    return site.outputs, Search(*site.values)


async def use(site: CanarySite) -> None:
    """Call every tool of every server, over both doors."""
    servers = [given.name for given in site.given if given.kind == "server"]
    await asyncio.gather(*(use_server(site, server) for server in servers))
    await chat(site)


async def use_server(site: CanarySite, server: str) -> None:
    """Call every tool, once with its progress."""
    path = f"{ADMIN}/servers/{server}/tools"
    listed = json.loads(await site.ask("trials", "GET", path)).get("tools", [])
    for one in listed:
        await site.call(server, one["tool"])
        await site.call(server, one["tool"], Accept="text/event-stream")


async def chat(site: CanarySite) -> None:
    """Let a model use tools, and its server refuse, fail and repeat its key."""
    upstream = site.upstream
    [backend] = [given for given in site.given if given.kind == "backend"]
    values = [one.value for one in backend.held]
    text = said(values)
    headers = {"x_request_id": values[0], "openai_version": values[0], "Retry_After": values[0]}
    for tool in (CONTROL, "said", "structured", "failed", "rpc"):
        asked = calls((f"mcp__{CONTROL}__{tool}", {"text": CONTROL}))
        for stream in (False, True):
            await site.chat(upstream, asked, stream=stream)
    for status in (400, 401, 403, 429, 500):
        in_form = fails(status, text, code=values[0], **headers)
        for upstream.default in (in_form, sends(text, status, **headers)):
            for stream in (False, True):
                await site.chat(upstream, stream=stream)
                await site.chat(upstream, stream=stream, mcp={"enabled": False})
    upstream.default = says(CONTROL)
    await site.chat(upstream, sends(text, 200, Content_Type=f"text/{values[0]}"))
    await site.ask("chat", "GET", "/v1/models", token=site.client)


async def fail(site: CanarySite) -> None:
    """Take secrets away in every way while they are in use, and give new ones."""
    servers = [given for given in site.given if given.kind == "server"]
    for given in site.given:
        one = given.held[0]
        site.old.append(one)
        given.held[0] = type(one)(one.name, canary_value())
        body = {"value": given.held[0].value}
        await site.ask("secrets", "PUT", f"{SECRETS}/{one.name}", body)
        await site.ask("secrets", "PUT", f"{SECRETS}/{one.name}", {**body, "values": one.value})
        await site.ask("secrets", "PUT", f"{SECRETS}/{one.value}", body)
        await site.ask("secrets", "PUT", f"{SECRETS}/{one.name}", {"value": one.value + "\0"})
    await use(site)
    for number, given in enumerate(servers):
        one = given.held[1]
        path = f"{SECRETS}/{one.name}"
        if number % 2:
            await site.ask("secrets", "POST", f"{path}/unbind", {"server": given.name})
        else:
            await site.ask("secrets", "DELETE", path)
        tried = await site.ask("trials", "POST", f"{ADMIN}/servers/{given.name}/test")
        assert not json.loads(tried)["ok"]
    await use(site)


async def start_with_another_key(site: CanarySite) -> None:
    """Have a start refused that is given a key of other secrets."""
    key = b64encode(os.urandom(32)).decode()
    words = ("up", "--port", "0", "--data-dir", str(site.up.data))
    process = await start(*words, BASCULE_SECRETS_KEY=key, BASCULE_LOG_LEVEL="debug")
    async with asyncio.timeout(SOON_SECONDS):
        site.outputs["refused start"] += await process.communicate()
    assert process.returncode == 1


@pytest.mark.requirement("security:secrets:never-returned")
@pytest.mark.parametrize("log_form", ["json", "text"])
async def test_no_output_has_a_canary_in_any_encoding(log_form: str, tmp_path: Path):
    outputs, search = await gathered(tmp_path, log_form)
    # Every output was searched: where nobody chooses a word, one stands there by right.
    free = [place for place in outputs if place not in FIXED]
    assert [place for place in free if CONTROL not in search(*outputs[place])] == []
    assert [place for place in FIXED if FIXED[place] not in b"".join(outputs[place])] == []
    found = {place: search(*texts) - {CONTROL} for place, texts in outputs.items()}
    assert {place: sorted(hits) for place, hits in found.items() if hits} == {}
