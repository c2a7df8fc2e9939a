"""``make screenshots``: every screen of a busy process, light and dark, into ``docs/images/``.

Those on a phone go into ``.cache/screenshots/``, to be looked at. Words limit it to some screens:
``make screenshots ARGS="servers tools"``.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import expect

from bascule.clock import SYSTEM_CLOCK
from tests.browser.chromium import browsing, chromium
from tests.browser.screen import COLOURS, DESK, SCREENS, Screen, Size
from tests.browser.site import Site, serving
from tests.browser.visit import Visit

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PHONES = ROOT / ".cache" / "screenshots"
PHONE: Size = (390, 844)
#: What is called, again and again, and for how long before the first picture.
CALLS = (
    *("notes.list_notes", "handbook.search_notes", "notes.current_time", "field.list_notes"),
    *("handbook.list_notes", "handbook.search_notes", "field.search_notes", "notes.list_notes"),
)
#: Once among so many calls one is refused.
REFUSED, AMONG = "handbook.write_note", 23
TRAFFIC_SECONDS = 100.0
#: What has to be seen before a picture is worth taking.
SEEN = {"overview": "section[aria-labelledby=recent] li:nth-child(8)"}
WHO = "alice"


def notebook(server_id: str, name: str, *tags: str) -> dict[str, Any]:
    """Make a record that starts the demo's program as a server of another name."""
    return {
        "server_id": server_id,
        "display_name": name,
        "transport": "stdio",
        "tags": tags,
        "allowed_tools": ["read_*", "list_*", "search_*"],
        "effects": {"read": ["read_*", "list_*", "search_*"]},
        "stdio": {"command": sys.executable, "args": ["-m", "bascule.demo.server"]},
    }


SERVERS: tuple[dict[str, Any], ...] = (
    notebook("handbook", "Team handbook", "docs", "internal"),
    notebook("field", "Field notes", "research"),
    {
        "server_id": "tickets",
        "display_name": "Tickets",
        "transport": "streamable_http",
        "tags": ["support"],
        "allowed_tools": ["*"],
        "approval_policy": {"default": "always"},
        "http": {"url": "https://tickets.example/mcp"},
    },
    {
        "server_id": "warehouse",
        "display_name": "Data warehouse",
        "transport": "streamable_http",
        "tags": ["data"],
        "enabled": False,
        "http": {"url": "https://warehouse.example/mcp"},
    },
)
RECORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("/admin/api/mcp/servers", server) for server in SERVERS),
    (
        "/admin/api/mcp/profiles",
        {"name": "readers", "description": "Looks, and changes nothing", "read_only": True},
    ),
    (
        "/admin/api/mcp/tasks",
        {
            "task_id": "support",
            "name": "Support desk",
            "mcp": {"enabled": True, "default_server_ids": ["notes", "handbook", "field"]},
        },
    ),
    (
        "/admin/api/mcp/users",
        {"user_id": WHO, "display_name": "Alice Meyer", "groups": ["support"]},
    ),
)


async def shoot(places: Sequence[str]) -> None:
    """Take the pictures."""
    with TemporaryDirectory() as folder:
        async with (
            browsing(chromium()) as browser,
            serving(Path(folder) / "data") as site,
            busy(site),
            AsyncExitStack() as windows,
        ):
            screen = await Visit(browser, windows)(site, person=WHO)
            await screen.open()
            await screen.run("localStorage.setItem('bascule.welcome', 'tools call')")
            for place in places:
                await take(screen, place)


async def take(screen: Screen, place: str) -> None:
    """Take the pictures of one screen."""
    for size, folder in ((DESK, IMAGES), (PHONE, PHONES)):
        await screen.resize(size)
        await screen.open(place)
        await screen.settled()
        await prepare(screen, place)
        for colours in COLOURS:
            await screen.colours(colours)
            path = folder / f"{place.replace('/', '-')}-{colours}.png"
            await screen.page.screenshot(path=path, animations="disabled")
            print(path.relative_to(ROOT))  # noqa: T201 - a command
        if place == "welcome":
            await screen.button("Stop").click()


async def prepare(screen: Screen, place: str) -> None:
    """Let a screen show what it is for: of the welcome, the question that waits."""
    if place == "welcome":
        step = screen.button("Approve a call", exact=False)
        if await step.get_attribute("aria-expanded") != "true":
            await step.click()
        await screen.button("Send it").click()
        await expect(screen.button("Approve")).to_be_visible()
        await screen.run("scrollTo(0, 0)")
    if seen := SEEN.get(place):
        await expect(screen.page.locator(seen)).to_be_visible()


@asynccontextmanager
async def busy(site: Site) -> AsyncGenerator[None]:
    """Have records, calls, and a question that waits for somebody."""
    for address, record in RECORDS:
        status, answer = await site.ask("POST", address, token=site.admin, body=record)
        assert status in (200, 201), answer
    token, asker = await site.token("support"), await site.token("demo")
    works: list[asyncio.Task[Any]] = [
        asyncio.create_task(site.call(asker, "notes.delete_note", name="shopping")),
        asyncio.create_task(calling(site, token)),
    ]
    try:
        await SYSTEM_CLOCK.sleep(TRAFFIC_SECONDS)
        yield
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def calling(site: Site, token: str) -> None:
    """Call tools, now more and now fewer of them."""
    for number in count():
        tool = CALLS[number % len(CALLS)] if number % AMONG else REFUSED
        await site.call(token, tool, **({"query": f"{number}"} if "search" in tool else {}))
        await SYSTEM_CLOCK.sleep(0.15 + 0.1 * math.sin(number / 20))


if __name__ == "__main__":
    asyncio.run(shoot(sys.argv[1:] or SCREENS))
