"""The words in which tests speak of a screen. Every wait has a deadline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from playwright.async_api import CDPSession, Locator, Page, expect

from checks import web
from tests.browser.site import Site
from tests.browser.watch import Watch

DEADLINE_MS = 20_000
expect.set_options(timeout=DEADLINE_MS)

Colours = Literal["light", "dark"]
COLOURS: tuple[Colours, ...] = ("light", "dark")
Size = tuple[int, int]
PHONE: Size = (320, 640)
DESK: Size = (1280, 800)
#: The screens of an admin, by the words of their addresses.
SCREENS = (
    *("welcome", "overview", "servers", "tools", "tasks", "profiles", "people", "approvals"),
    *("playground", "audit", "agents", "secrets", "tokens", "nodes", "platform"),
)
_TABS = 120


class Screen:
    """A page of the browser at a site, and what one can do and see there."""

    def __init__(self, page: Page, site: Site, watch: Watch) -> None:
        self.page = page
        self.site = site
        self.watch = watch
        self._cdp: CDPSession | None = None

    async def open(self, place: str = "") -> None:
        """Load a screen by its address, ``servers/demo``, and wait until its heading is there."""
        await self.page.goto("about:blank")  # another fragment alone loads nothing
        await self.page.goto(f"{self.site.url}/admin/#/{place}")
        await expect(self.heading).to_be_visible()

    async def go(self, place: str) -> None:
        """Go to another screen in the page that is open, and wait until its heading is there."""
        here = json.dumps(f"#/{place}")
        await self.run(
            f"document.getElementById('title').dataset.left = ''; location.hash = {here}"
        )
        await expect(self.page.locator("h1#title:not([data-left])")).to_be_visible()

    async def leave(self) -> None:
        """Leave the page: before what it shows is taken away."""
        await self.page.goto("about:blank")

    async def settled(self) -> None:
        """Wait until nothing says that it is still fetching."""
        await expect(self.page.locator(".waiting")).to_have_count(0)

    @property
    def heading(self) -> Locator:
        """The title of the screen."""
        return self.page.locator("h1#title")

    @property
    def nav(self) -> Locator:
        """The way to the other screens, and who is signed in."""
        return self.page.get_by_role("navigation", name="Screens")

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    def link(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("link", name=name, exact=exact)

    def field(self, label: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_label(label, exact=exact)

    def row(self, text: str) -> Locator:
        """A row of a table, by words in it."""
        return self.page.get_by_role("row").filter(has_text=text)

    def dialog(self, title: str) -> Locator:
        """A dialog that is open."""
        return self.page.get_by_role("dialog", name=title)

    async def says(self, text: str) -> None:
        """Wait until a text is to be seen."""
        await expect(self.page.get_by_text(text).first).to_be_visible()

    async def says_not(self, text: str) -> None:
        """Wait until a text is not to be seen any more."""
        await expect(self.page.get_by_text(text)).to_have_count(0)

    async def tab_to(self, target: Locator) -> None:
        """Press Tab until something has the focus: whether it can be reached without a mouse."""
        for _ in range(_TABS):
            if await target.evaluate("node => node === document.activeElement"):
                return
            await self.page.keyboard.press("Tab")
        raise AssertionError(f"not reached with {_TABS} tabs: {target}")

    async def press(self, target: Locator, key: str = "Enter") -> None:
        """Reach something by keyboard and press a key there."""
        await self.tab_to(target)
        await self.page.keyboard.press(key)

    async def resize(self, size: Size) -> None:
        await self.page.set_viewport_size({"width": size[0], "height": size[1]})

    async def stored(self, name: str) -> str | None:
        """Read what the page keeps in its origin's storage."""
        return await self.run(f"localStorage.getItem({json.dumps(name)})")

    async def run(self, script: str) -> Any:
        """Run a script in the page, through the debugger: its content policy does not bind that."""
        self._cdp = self._cdp or await self.page.context.new_cdp_session(self.page)
        words = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = await self._cdp.send("Runtime.evaluate", words)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def colours(self, colours: Colours) -> None:
        await self.page.emulate_media(color_scheme=colours)

    async def fits(self) -> None:
        """Look that nothing sticks out at the side."""
        root = self.page.locator("html")
        wide, has = await root.evaluate("node => [node.scrollWidth, node.clientWidth]")
        assert wide <= has, f"{self.page.url}: {wide} px wide in a window of {has}"

    async def axe(self, *colours: Colours) -> None:
        """Let axe-core look at the page, light and dark: it finds nothing.

        It looks at a dialog alone where one is open, and the second time at colours alone.
        """
        rules = ""
        for one in colours or COLOURS:
            await self.colours(one)
            found = await self._axe(rules)
            assert not found, f"{self.page.url}, {one}:\n" + "\n".join(map(_told, found))
            rules = "runOnly: ['color-contrast', 'link-in-text-block'], "

    async def _axe(self, rules: str) -> Sequence[Mapping[str, Any]]:
        if await self.run("typeof axe") == "undefined":
            await self.run(f"{axe_core()};0")
        where = "document.querySelector('dialog[open]') ?? document"
        options = f"{{{rules}resultTypes: ['violations']}}"
        return await self.run(f"axe.run({where}, {options}).then((found) => found.violations)")


def _told(violation: Mapping[str, Any]) -> str:
    nodes = [f"    {node['html'][:200]} {node['failureSummary']}" for node in violation["nodes"]]
    return "\n".join([f"  {violation['id']}: {violation['help']}", *nodes[:5]])


@cache
def axe_core() -> str:
    """Return the source of axe-core, of the lock of ``web/``."""
    web.install()
    return (web.MODULES / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
