"""Windows of a browser: each with storage, colours and size of its own, and watched."""

from __future__ import annotations

from contextlib import AsyncExitStack

from playwright.async_api import Browser, BrowserContext, StorageState

from bascule.model.role import Role
from tests.browser.screen import DEADLINE_MS, DESK, Colours, Screen, Size
from tests.browser.site import Site
from tests.browser.watch import Watch

#: Where the page keeps its token (web/src/state/session.svelte.ts).
TOKEN = "bascule.token"


class Visit:
    """Opens windows, as many as a test wants; they end with it."""

    def __init__(self, browser: Browser, windows: AsyncExitStack) -> None:
        self._browser = browser
        self._windows = windows
        self.watches: list[Watch] = []

    async def __call__(
        self,
        site: Site,
        role: Role | None = "admin",
        *,
        person: str | None = None,
        task: str | None = None,
        size: Size = DESK,
        colours: Colours = "light",
    ) -> Screen:
        """Open a window that is signed in, or with no role one that is not; no page is open yet."""
        kept: StorageState = {}
        if role is not None:
            token = await site.sign_in(role, person=person, task=task)
            kept = {
                "origins": [{"origin": site.url, "localStorage": [{"name": TOKEN, "value": token}]}]
            }
        context = await self._browser.new_context(
            storage_state=kept,
            viewport={"width": size[0], "height": size[1]},
            color_scheme=colours,
            reduced_motion="reduce",
        )
        self._windows.push_async_callback(_close, context)
        context.set_default_timeout(DEADLINE_MS)
        watch = Watch(site.url)
        await watch.over(context)
        self.watches.append(watch)
        return Screen(await context.new_page(), site, watch)


async def _close(context: BrowserContext) -> None:
    """Close a window, once what a test answers in place of the site has been answered.

    A page asks now and then: an answer that ends after its window fails the test that comes next.
    """
    for page in context.pages:
        await page.unroute_all(behavior="wait")
    await context.close()
