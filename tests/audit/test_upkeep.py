"""Upkeep says once that it cannot be done, and once that it can."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bascule.audit.upkeep import look_after
from bascule.db.errors import StoreUnavailable
from bascule.testing.clock import FakeClock
from tests.waits import advanced_until


async def test_a_long_failure_is_said_once_and_its_end_once(
    caplog: pytest.LogCaptureFixture,
):
    clock = FakeClock()
    caplog.set_level(logging.INFO, "bascule.approvals")
    swept: list[int] = []

    async def sweep() -> None:
        swept.append(len(swept))
        if len(swept) in range(2, 6):
            raise StoreUnavailable("away")

    upkeep = asyncio.create_task(look_after("things", sweep, 5.0, clock))
    try:
        await advanced_until(clock, lambda: len(swept) >= 8, seconds=5.0)
    finally:
        upkeep.cancel()
        await asyncio.wait({upkeep})
    assert [record.getMessage() for record in caplog.records] == [
        "things cannot be looked after now: away",
        "things are looked after again",
    ]
