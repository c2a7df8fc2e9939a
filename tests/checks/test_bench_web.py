"""What the benchmark of the page's cost at the start rests on: a process without the page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.caller import Caller
from bench.page_starts import PAGELESS
from bench.site import CALL, CALL_PATH, make_site, served


async def test_a_process_without_the_page_answers_calls_and_nothing_that_the_page_asks(
    tmp_path: Path,
):
    site = await make_site(tmp_path)
    async with (
        asyncio.timeout(60),
        served(site, program=PAGELESS) as (url, _),
        Caller(url, site.client) as client,
        Caller(url, site.admin) as admin,
    ):
        assert (await client.post(CALL_PATH, CALL))["ok"]
        for address in ("/admin/", "/admin/api/live", "/admin/api/overview"):
            assert (await admin.send("GET", address))["error"]["code"] == "not_found"
