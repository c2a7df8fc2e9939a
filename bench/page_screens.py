"""The page in a browser: a long list of tools beside a short one, and the heap while it watches.

Frames are not held to the rate of a display, so that a frame takes what its work takes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, CDPSession, Page

from bench.caller import Caller
from bench.site import make_site, served
from bench.table import Row, at_most
from tests.browser.chromium import browsing, chromium

UNHELD = ("--disable-frame-rate-limit", "--disable-gpu-vsync")
LISTING = Path(__file__).with_name("listing_server.py")
FEW, MANY = 100, 10_000
A_SERVER = 500  # a server may list a little more
ROUNDS = 12
#: Each letter is one measurement; the last ones leave few.
WORD = "tool_004"
FRAMES, STEP = 120, 97
MINUTE, TEN_MINUTES = 60, 600
CALLS = 10
HELPERS = Path(__file__).with_name("page_screens.js").read_text(encoding="utf-8")


class Window:
    """A page that is signed in, and the debugger's view of it."""

    def __init__(self, page: Page, debugger: CDPSession, url: str) -> None:
        self.page = page
        self._debugger = debugger
        self._url = url

    async def open(self, place: str) -> None:
        await self.page.goto(f"{self._url}/admin/#/{place}")
        await self.page.locator("h1#title").wait_for()

    async def run(self, script: str) -> Any:
        """Run a script in the page; its content policy does not bind the debugger."""
        words = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = await self._debugger.send("Runtime.evaluate", words)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def used(self) -> float:
        """Return how much CPU the main thread has used for tasks, in ms."""
        found = await self._debugger.send("Performance.getMetrics")
        return next(one["value"] for one in found["metrics"] if one["name"] == "TaskDuration") * 1e3

    async def heap(self) -> tuple[float, float]:
        """Return the bytes that are in use after a collection, and the nodes of the document."""
        for _ in range(3):
            await self._debugger.send("HeapProfiler.collectGarbage")
        usage = await self._debugger.send("Runtime.getHeapUsage")
        counters = await self._debugger.send("Memory.getDOMCounters")
        return usage["usedSize"], counters["nodes"]


async def screens() -> list[Row]:
    """Measure both in one browser."""
    async with browsing(chromium(), *UNHELD) as browser:
        return [*await tools(browser), *await watching(browser)]


# --- the Tools screen


async def tools(browser: Browser) -> list[Row]:
    """Type and scroll in a long list and a short one, in turn."""
    filtered: dict[int, list[float]] = {FEW: [], MANY: []}
    scrolled: dict[int, list[float]] = {FEW: [], MANY: []}
    key_cpu: dict[int, list[float]] = {FEW: [], MANY: []}
    frame_cpu: dict[int, list[float]] = {FEW: [], MANY: []}
    async with AsyncExitStack() as stack:
        windows = {
            count: await stack.enter_async_context(tool_list(browser, count))
            for count in (FEW, MANY)
        }
        for number in range(ROUNDS + 1):
            for count in (FEW, MANY) if number % 2 else (MANY, FEW):
                window = windows[count]
                before = await window.used()
                keys = await typed(window)
                between = await window.used()
                frames = await window.run(f"bench.scroll({FRAMES}, {STEP})")
                after = await window.used()
                if number:  # the first one warms up
                    filtered[count].append(median(keys))
                    scrolled[count].append(median(frames))
                    key_cpu[count].append((between - before) / len(keys))
                    frame_cpu[count].append((after - between) / FRAMES)
    many = f"Tools, {MANY:,} / {FEW}"
    return [
        at_most(f"{many}: from a key to the filtered list painted", times(filtered), "x", 3),
        at_most(f"{many}: frame while scrolling", times(scrolled), "x", 3),
        Row(f"{many}: CPU of the page's thread for a key", times(key_cpu), "x"),
        Row(f"{many}: CPU of the page's thread for a frame", times(frame_cpu), "x"),
        *(
            Row(f"Tools, {count:,}: {what}", median(found[count]), "ms")
            for what, found in (("a key", filtered), ("a frame while scrolling", scrolled))
            for count in (FEW, MANY)
        ),
    ]


def times(found: dict[int, list[float]]) -> float:
    return median(many / few for many, few in zip(found[MANY], found[FEW], strict=True))


@asynccontextmanager
async def tool_list(browser: Browser, count: int) -> AsyncGenerator[Window]:
    """A process that knows so many tools, and its Tools screen."""
    with TemporaryDirectory() as folder:
        ids = [f"s{number}" for number in range(max(1, count // A_SERVER))]
        each = count // len(ids)
        site = await make_site(Path(folder), [listing(id, each, folder) for id in ids], task(ids))
        async with (
            served(site) as (url, _),
            Caller(url, site.client) as client,
            opened(browser, url, site.admin) as window,
        ):
            await client.send("GET", "/api/v1/tools")  # then they are known
            await window.open("tools")
            said = window.page.locator("[role=status]", has_text="tools")
            await window.page.locator(f".rows [aria-setsize='{count}']").first.wait_for()
            assert str(count) in (await said.first.inner_text()).replace(",", "")
            yield window


def listing(id: str, count: int, folder: str) -> str:
    args = json.dumps([str(LISTING), str(count), f"{folder}/requests"])
    command = json.dumps(sys.executable)
    head = f'server_id = "{id}"\ntransport = "stdio"\nallowed_tools = ["*"]\n'
    return f"{head}[stdio]\ncommand = {command}\nargs = {args}\n"


def task(ids: list[str]) -> str:
    policy = f"enabled = true\nmax_tools = 10000\ndefault_server_ids = {json.dumps(ids)}\n"
    return f'task_id = "bench"\n[mcp]\n{policy}'


async def typed(window: Window) -> list[float]:
    """Type a word, then take it away again; how long each key took."""
    await window.page.locator("input[type=search]").focus()
    found: list[float] = []
    for key in (*WORD, *("Backspace" for _ in WORD)):
        await window.run("bench.awaitKey()")
        await window.page.keyboard.press(key)
        found.append(await window.run("bench.key"))
    return found


@asynccontextmanager
async def opened(browser: Browser, url: str, token: str) -> AsyncGenerator[Window]:
    """A window with a token in its storage; nothing is loaded yet."""
    kept: Any = {
        "origins": [{"origin": url, "localStorage": [{"name": "bascule.token", "value": token}]}]
    }
    context = await browser.new_context(
        storage_state=kept, viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
    )
    try:
        page = await context.new_page()
        await page.add_init_script(HELPERS)
        debugger = await context.new_cdp_session(page)
        await debugger.send("Performance.enable", {"timeDomain": "threadTicks"})
        yield Window(page, debugger, url)
    finally:
        await context.close()


# --- the overview while much happens


async def watching(browser: Browser) -> list[Row]:
    """Let the overview see ten minutes of a live stream, and compare the heap with the first."""
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        async with served(site) as (url, _), opened(browser, url, site.admin) as window:
            await window.page.clock.install()
            await window.page.add_init_script("bench.standIn()")
            await window.open("overview")
            first = await told(window, 0, MINUTE)
            last = await told(window, MINUTE, TEN_MINUTES)
    name = f"overview, ten minutes / one of {CALLS} calls a second (stream and clock run fast)"
    return [
        at_most(f"{name}: heap", last[0] / first[0], "x", 1.2),
        Row(f"{name}: nodes of the document", last[1] / first[1], "x"),
        Row("overview after ten minutes: heap", last[0] / 1e6, "MB"),
    ]


async def told(window: Window, begin: int, end: int) -> tuple[float, float]:
    """Tell the page what these seconds bring, and let them pass; its heap then."""
    for second in range(begin, end):
        await window.run(f"bench.second({second}, {CALLS})")
        await window.page.clock.run_for(1000)
    shown = await window.page.locator("main").inner_text()
    assert f"tool_{end - 1}_" in shown, "the page did not show what it was told"
    return await window.heap()
