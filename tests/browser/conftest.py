"""One browser and one process for all tests of a worker; a window of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import NoChromium, browsing, chromium
from tests.browser.screen import Screen
from tests.browser.servers import Register
from tests.browser.site import Site, serving
from tests.browser.visit import Visit

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test here time for what the first one may do: install the browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="package")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    """The browser of this worker."""
    try:
        program = chromium()
    except NoChromium as none:
        pytest.skip(str(none))
    async with browsing(program) as browser:
        yield browser


@pytest.fixture(scope="package")
async def site(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A process with the demo that all tests of this worker share: leave it as it was."""
    async with serving(tmp_path_factory.mktemp("site") / "data") as site:
        yield site


@pytest.fixture(scope="package")
async def empty_site(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A process without a record, shared as well."""
    async with serving(tmp_path_factory.mktemp("empty") / "data", "--empty") as site:
        yield site


@pytest.fixture
async def register(site: Site) -> AsyncIterator[Register]:
    """Write records at the site with the demo; they go when the windows are closed."""
    register = Register(site)
    yield register
    await register.clear()


@pytest.fixture
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """Open windows; whatever went wrong in one of them fails the test at its end."""
    async with AsyncExitStack() as windows:
        visit = Visit(browser, windows)
        yield visit
    complaints = [word for watch in visit.watches for word in watch.complaints]
    assert not complaints, "\n".join(complaints)


@pytest.fixture
async def screen(visit: Visit, site: Site) -> Screen:
    """A window of an admin at the site with the demo."""
    return await visit(site)
