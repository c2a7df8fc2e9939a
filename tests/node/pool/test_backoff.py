"""When a server is tried again: bounds of the jitter, parking and forgiving."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.node.backoff import Backoff
from bascule.node.settings import NodeSettings
from bascule.testing import FakeClock

SECONDS = st.floats(min_value=0.0, max_value=1e6, allow_nan=False)


@pytest.mark.requirement("pool:backoff")
@given(
    base=SECONDS, limit=SECONDS, failures=st.integers(min_value=1, max_value=60), more=st.booleans()
)
def test_the_delay_lies_below_a_doubling_ceiling_and_the_limit(
    base: float, limit: float, failures: int, more: bool
):
    settings = NodeSettings(
        backoff_seconds=base, backoff_limit_seconds=limit, park_after=10_000 if more else 61
    )
    backoff = Backoff(settings, FakeClock())
    for _ in range(failures):
        backoff.failed()
    assert 0.0 <= backoff.remaining <= min(limit, base * 2.0 ** (failures - 1))
    assert not backoff.parked


@pytest.mark.requirement("pool:backoff")
def test_the_jitter_is_full():
    """Over many failures the delays fill the whole range, the low end included."""
    delays: list[float] = []
    for _ in range(400):
        backoff = Backoff(NodeSettings(backoff_seconds=1.0), FakeClock())
        backoff.failed()
        delays.append(backoff.remaining)
    assert min(delays) < 0.1
    assert max(delays) > 0.9
    assert len(set(delays)) > 390


def test_any_number_of_failures_gives_a_delay():
    backoff = Backoff(NodeSettings(park_after=10**9), FakeClock())
    for _ in range(3000):
        backoff.failed()
    assert backoff.remaining <= 30.0


@pytest.mark.requirement("pool:parked")
@given(park=st.floats(min_value=0.001, max_value=1e6), after=st.integers(1, 20))
def test_a_parked_server_waits_at_least_half_its_parking(park: float, after: int):
    backoff = Backoff(NodeSettings(park_after=after, park_seconds=park), FakeClock())
    for attempt in range(1, after + 3):
        backoff.failed()
        assert backoff.parked == (attempt >= after)
    assert park / 2 <= backoff.remaining <= park


async def test_the_wait_shrinks_as_time_passes_and_never_below_nothing():
    clock = FakeClock()
    backoff = Backoff(NodeSettings(park_after=1, park_seconds=10.0), clock)
    backoff.failed()
    before = backoff.remaining
    await clock.advance(4.0)
    assert backoff.remaining == pytest.approx(before - 4.0)
    await clock.advance(100.0)
    assert backoff.remaining == 0.0


async def test_only_losses_within_a_minute_park():
    clock = FakeClock()
    backoff = Backoff(NodeSettings(losses_per_minute=3), clock)
    for _ in range(10):
        backoff.lost()
        await clock.advance(30.0)
    assert not backoff.parked
    assert backoff.remaining == 0.0
    backoff.lost()
    await clock.advance(1.0)
    backoff.lost()
    assert backoff.parked
    assert backoff.remaining >= 60.0


def test_a_server_that_answered_starts_afresh():
    backoff = Backoff(NodeSettings(park_after=3), FakeClock())
    backoff.failed()
    backoff.failed()
    backoff.proven()
    backoff.failed()
    assert (backoff.failures, backoff.parked) == (1, False)


def test_an_answer_does_not_excuse_losses():
    """A server that answers once and dies, over and over, is flapping all the same."""
    backoff = Backoff(NodeSettings(losses_per_minute=3), FakeClock())
    for _ in range(3):
        backoff.proven()
        backoff.lost()
    assert backoff.parked


def test_forgiving_forgets_everything():
    backoff = Backoff(NodeSettings(park_after=1, losses_per_minute=2), FakeClock())
    backoff.lost()
    backoff.failed()
    backoff.forgive()
    assert (backoff.failures, backoff.parked, backoff.remaining) == (0, False, 0.0)
    backoff.lost()
    assert not backoff.parked
