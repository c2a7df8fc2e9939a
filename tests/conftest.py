"""What every test shares: asyncio, and how hard Hypothesis and the long tests try."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from checks.stalls import StallWatch
from tests.scale import SOAK

BROWSER = Path(__file__).parent / "browser"

# `make test` must give the same answer twice; exploring is the business of `make soak`.
settings.register_profile("default", deadline=None, max_examples=100, derandomize=True)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=10_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("soak" if SOAK else "default")


def pytest_configure(config: pytest.Config) -> None:
    """Have a process that runs tests end where a test would hold it for ever."""
    config.pluginmanager.register(StallWatch(), "stalls")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run every asynchronous test on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have what servers keep in the user's cache folder in one that goes with the tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what exists only in a long form, and begin with what asks for more time.

    So no worker is left alone with a long test at the end. The tests with a browser come first of
    all and together: most of them run on one worker, which starts one browser for them.
    """
    items.sort(
        key=lambda item: (
            BROWSER not in item.path.parents,
            item.get_closest_marker("timeout") is None,
        )
    )
    if SOAK:
        return
    long_only = [item for item in items if item.get_closest_marker("soak")]
    if long_only:
        config.hook.pytest_deselected(items=long_only)
        items[:] = [item for item in items if item not in long_only]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what is collected, now or later: all of it stays to the end."""
    gc.disable()
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result
