"""The tool list of one server: how long it is good for, what changes it, what is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import BasculeError, ServerUnavailable
from bascule.model.server import Budgets
from bascule.node.pool.catalogue import MAX_DESCRIPTION, Catalogue, usable_tools
from bascule.node.pool.client import ToolList
from bascule.node.ports import Listing
from bascule.node.settings import NodeSettings
from bascule.testing import MALFORMED_TOOLS, FakeClock, tool
from tests.node.pool.conftest import Make
from tests.node.pool.fake_channel import FakePeer, our_tasks, record
from tests.waits import SOON_SECONDS


def raw(*tools: Any, ttl_ms: int | None = None, warnings: tuple[str, ...] = ()) -> ToolList:
    return ToolList(list(tools), ttl_ms, "private", warnings)


class Source:
    """Where a catalogue lists from: counts, and can be slow or broken."""

    def __init__(self) -> None:
        self.tools: list[Any] = [tool("echo")]
        self.ttl_ms: int | None = None
        self.fails: BasculeError | None = None
        self.fetches = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.changes = 0

    async def fetch(self) -> ToolList:
        self.fetches += 1
        tools = list(self.tools)
        await self.may_answer.wait()
        if self.fails is not None:
            raise self.fails
        return raw(*tools, ttl_ms=self.ttl_ms)

    def changed(self) -> int:
        self.changes += 1
        return self.changes


@pytest.fixture
async def source() -> Source:
    return Source()


@pytest.fixture
async def build(source: Source, clock: FakeClock) -> AsyncGenerator[Callable[..., Catalogue]]:
    made: list[Catalogue] = []
    before = our_tasks()

    def make(**settings: Any) -> Catalogue:
        made.append(
            Catalogue(
                record(), source.fetch, NodeSettings(**settings), clock, on_change=source.changed
            )
        )
        return made[-1]

    yield make
    for catalogue in made:
        await catalogue.close()
    assert our_tasks() <= before


def names(listing: Listing | None) -> list[str]:
    assert listing is not None
    return [found.name for found in listing.tools]


# -- how long a list is good for ---------------------------------------------------------


@pytest.mark.requirement("catalogue:cached", "catalogue:on-demand")
async def test_tools_are_listed_once_and_served_from_the_cache(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_ttl_seconds=100.0)
    assert (catalogue.listing, source.fetches) == (None, 0)
    first = await catalogue.get()
    await clock.advance(99.0)
    assert await catalogue.get() is first
    assert (source.fetches, source.changes) == (1, 1)


@pytest.mark.requirement("catalogue:ttl")
async def test_an_expired_list_is_fetched_again(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_ttl_seconds=7.0)
    await catalogue.get()
    await clock.advance(7.0)
    await catalogue.get()
    assert source.fetches == 2


@pytest.mark.requirement("catalogue:ttl")
async def test_the_servers_own_ttl_wins(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    source.ttl_ms = 2500
    catalogue = build(list_ttl_seconds=100.0)
    await catalogue.get()
    await clock.advance(2.0)
    await catalogue.get()
    assert source.fetches == 1
    await clock.advance(0.5)
    await catalogue.get()
    assert source.fetches == 2


async def test_no_ttl_of_a_server_outlasts_a_day(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    source.ttl_ms = 10**15
    catalogue = build()
    await catalogue.get()
    await clock.advance(86_400.0)
    await catalogue.get()
    assert source.fetches == 2


@pytest.mark.requirement("catalogue:failure-ttl")
async def test_a_failure_is_told_again_without_listing_until_its_short_ttl_is_over(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_failure_seconds=2.0)
    source.fails = ServerUnavailable("no tool list in time", reason="list_timeout")
    for _ in range(5):
        with pytest.raises(ServerUnavailable) as caught:
            await catalogue.get()
        assert caught.value.reason == "list_timeout"
    assert source.fetches == 1
    source.fails = None
    await clock.advance(2.0)
    assert names(await catalogue.get()) == ["echo"]
    assert source.fetches == 2


@pytest.mark.requirement("catalogue:single-flight")
async def test_many_callers_of_an_expired_list_cause_one_listing(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_ttl_seconds=1.0)
    await catalogue.get()
    await clock.advance(2.0)
    source.may_answer.clear()
    callers = [asyncio.create_task(catalogue.get()) for _ in range(50)]
    await clock.settle()
    callers[0].cancel()
    source.may_answer.set()
    async with asyncio.timeout(SOON_SECONDS):
        found = await asyncio.gather(*callers[1:])
    assert source.fetches == 2
    assert all(listing is found[0] for listing in found)


# -- what changes it ---------------------------------------------------------------------


@pytest.mark.requirement("catalogue:revision-unchanged")
async def test_an_unchanged_list_keeps_its_version_and_tells_nobody(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_ttl_seconds=1.0)
    first = await catalogue.get()
    for _ in range(5):
        await clock.advance(1.0)
        again = await catalogue.get()
        assert (again.version, again.tools) == (first.version, first.tools)
        assert again.tools is first.tools
    assert (source.fetches, source.changes) == (6, 1)


async def test_another_order_of_the_same_tools_is_no_change(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    source.tools = [tool("b"), tool("a")]
    catalogue = build(list_ttl_seconds=1.0)
    first = await catalogue.get()
    source.tools = [tool("a"), tool("b")]
    await clock.advance(1.0)
    assert (await catalogue.get()).version == first.version
    assert source.changes == 1


@pytest.mark.parametrize("field", ["description", "annotations", "x-unknown", "outputSchema"])
async def test_any_changed_leaf_of_a_tool_is_a_change(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock, field: str
):
    catalogue = build(list_ttl_seconds=1.0)
    first = await catalogue.get()
    source.tools = [{**tool("echo"), field: {"type": "object"}}]
    await clock.advance(1.0)
    assert (await catalogue.get()).version != first.version
    assert source.changes == 2


@pytest.mark.requirement("catalogue:list-changed")
async def test_many_announcements_cause_one_listing_after_a_moment(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_debounce_seconds=0.1)
    await catalogue.get()
    source.tools.append(tool("more"))
    for _ in range(100):
        catalogue.invalidate()
    await clock.advance(0.05)
    assert source.fetches == 1
    await clock.advance(0.05)
    assert (source.fetches, names(catalogue.listing)) == (2, ["echo", "more"])
    await clock.advance(10.0)
    assert source.fetches == 2


@pytest.mark.requirement("catalogue:list-changed")
async def test_a_change_announced_while_listing_is_listed_again(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build()
    await catalogue.get()
    source.may_answer.clear()
    catalogue.invalidate()
    await clock.advance(0.1)
    assert source.fetches == 2  # the tools were read by now
    source.tools.append(tool("last"))
    catalogue.invalidate()
    source.may_answer.set()
    await clock.advance(0.2)
    assert (source.fetches, names(catalogue.listing)) == (3, ["echo", "last"])


@pytest.mark.requirement("catalogue:list-changed")
async def test_a_caller_after_an_announcement_does_not_get_the_old_list(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build()
    await catalogue.get()
    source.tools.append(tool("new"))
    catalogue.invalidate()
    assert names(await catalogue.get()) == ["echo", "new"]
    await clock.advance(1.0)
    assert source.fetches == 2  # asking was enough: the announcement is not listed twice


@pytest.mark.requirement("catalogue:list-changed")
async def test_a_change_whose_listing_failed_is_not_forgotten(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    catalogue = build(list_failure_seconds=2.0, list_ttl_seconds=1000.0)
    await catalogue.get()
    source.fails = ServerUnavailable("gone for now")
    source.tools.append(tool("new"))
    catalogue.invalidate()
    await clock.advance(1.0)
    assert (source.fetches, names(catalogue.listing)) == (2, ["echo"])
    source.fails = None
    await clock.advance(2.0)
    assert names(await catalogue.get()) == ["echo", "new"]


# -- the end -----------------------------------------------------------------------------


async def test_a_look_that_fails_costs_nobody_the_list_there_is(
    build: Callable[..., Catalogue], source: Source
):
    catalogue = build()
    first = await catalogue.get()
    source.fails = ServerUnavailable("no tool list in time", reason="list_timeout")
    with pytest.raises(ServerUnavailable):
        await catalogue.renew()
    assert await catalogue.get() is first


async def test_closing_ends_what_is_under_way_and_tells_those_who_wait(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    before = our_tasks()
    catalogue = build()
    source.may_answer.clear()
    waiting = asyncio.create_task(catalogue.get())
    await clock.settle()
    catalogue.invalidate()
    await catalogue.close()
    with pytest.raises(ServerUnavailable, match="closed"):
        await waiting
    assert (our_tasks(), clock.sleepers) == (before, 0)


async def test_an_announcement_after_the_end_starts_nothing(
    build: Callable[..., Catalogue], source: Source, clock: FakeClock
):
    before = our_tasks()
    catalogue = build()
    await catalogue.get()
    await catalogue.close()
    catalogue.invalidate()
    await clock.advance(10.0)
    assert (source.fetches, our_tasks()) == (1, before)


# -- what is left out --------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MALFORMED_TOOLS))
async def test_a_malformed_tool_never_costs_the_rest_of_the_list(
    make: Make, peer: FakePeer, name: str
):
    peer.tools = [tool("good"), MALFORMED_TOOLS[name], tool("also-good")]
    listing = await make().listing()
    kept = set(names(listing))
    assert {"good", "also-good"} <= kept
    assert bool(listing.quarantined or listing.warnings) == (len(kept) == 2)


async def test_all_malformed_tools_at_once_leave_a_warning_each(make: Make, peer: FakePeer):
    peer.tools = [tool("good"), *MALFORMED_TOOLS.values()]
    listing = await make().listing()
    left_out = len(listing.quarantined) + len(listing.warnings)
    assert len(listing.tools) + left_out == len(peer.tools)
    assert "good" in names(listing)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["name", "inputSchema", "description", "annotations", "outputSchema", "title"]
)


@given(st.lists(st.dictionaries(FIELDS, JSON, max_size=4), max_size=5))
def test_no_tool_whatever_it_looks_like_breaks_a_list(strange: list[dict[str, Any]]):
    tools, warnings = usable_tools(record(), raw(tool("good"), *strange))
    assert "good" in [found.name for found in tools]
    assert len(tools) + len(warnings) == 1 + len(strange)


def test_tools_come_in_the_order_of_their_names_and_a_second_of_a_name_is_left_out():
    second = {**tool("b"), "description": "the impostor"}
    tools, warnings = usable_tools(record(), raw(tool("c"), tool("b"), second, tool("a")))
    assert [found.name for found in tools] == ["a", "b", "c"]
    assert tools[1].description == "The b tool."
    assert warnings == ("a second tool is called 'b'",)


def test_a_description_beyond_all_measure_is_cut():
    endless = {**tool("a"), "description": "x" * (MAX_DESCRIPTION + 1)}
    (found,), _ = usable_tools(record(), raw(endless))
    assert len(found.description) <= MAX_DESCRIPTION + 10
    assert found.description.endswith("[…]")
    exact = {**tool("a"), "description": "x" * MAX_DESCRIPTION}
    (whole,), _ = usable_tools(record(), raw(exact))
    assert whole.description == "x" * MAX_DESCRIPTION


async def test_a_list_over_the_cap_is_cut_with_a_warning(make: Make, peer: FakePeer):
    peer.tools = [tool(f"t{number:04}") for number in range(600)]
    listing = await make().listing()
    assert len(listing.tools) == 512
    assert any("more than 512 tools" in warning for warning in listing.warnings)


@pytest.mark.requirement("catalogue:list-timeout")
async def test_a_list_over_its_budget_fails_with_its_reason(make: Make, peer: FakePeer):
    connection = make(record(budgets=Budgets(list_timeout_ms=20)))
    peer.hold("tools/list")
    with pytest.raises(ServerUnavailable) as caught:
        await connection.listing()
    assert caught.value.reason == "list_timeout"
    assert connection.state == "connected"


async def test_a_list_is_there_without_asking_only_while_it_is_good(
    build: Callable[..., Catalogue], clock: FakeClock
):
    catalogue = build(list_ttl_seconds=7.0)
    assert catalogue.fresh is None
    listing = await catalogue.get()
    assert catalogue.fresh is listing
    catalogue.invalidate()
    assert catalogue.fresh is None
    listing = await catalogue.get()
    assert catalogue.fresh is listing
    await clock.advance(7.0)
    assert catalogue.fresh is None
