"""Nothing waits for ever: a test that its own timeout cannot end, ends with its process.

``pytest-timeout`` raises in the test, which a wait outside of Python never sees. So a watch in C
shows all stacks and ends the process, a while after the timeout. Other processes go on, and
pytest-xdist names the test as failed.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

#: How much later than a test's own timeout its process ends.
GRACE_SECONDS = 60.0


class StallWatch:
    """A plugin for every process that runs tests."""

    def __init__(self) -> None:
        # Tests have descriptor 2 captured: stacks go where it led before.
        self._stderr = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch a test with its fixtures."""
        self._end_after(timeout_of(item) + GRACE_SECONDS)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Watch the fixtures of a test that failed too: pytest lets go of the watch then."""
        self._end_after(timeout_of(item) + GRACE_SECONDS)

    def _end_after(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)


def timeout_of(item: pytest.Item) -> float:
    """Return how many seconds a test may take by its own timeout."""
    marker = item.get_closest_marker("timeout")
    given = None if marker is None else marker.kwargs.get("timeout", *marker.args[:1])
    usual = item.config.getoption("timeout") or item.config.getini("timeout")
    return float(usual if given is None else given)
