"""What every store promises: one revision, no gaps, all or nothing, and a past to go back to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bascule.control.registry.errors import Compacted, Conflict, FutureRevision, HeadMoved
from bascule.control.registry.store import Change, Retention, Store
from bascule.model.kinds import KINDS
from bascule.testing.clock import FakeClock
from tests.control.registry.build import BY, PLAIN, gone, names, write

KEEP_ALL = 10_000


@pytest.mark.requirement("registry:revision:global", "registry:kinds")
async def test_one_revision_counts_the_changes_of_all_kinds(store: Store):
    for number, kind in enumerate(KINDS, start=1):
        change = await store.write([write(PLAIN[kind][0], kind=kind)], BY)
        assert change is not None
        assert change.revision == number
    view = await store.view()
    assert view.revision == len(KINDS)
    assert {key[0] for key in view.objects} == set(KINDS)
    assert [view.objects[kind, PLAIN[kind][0]].revision for kind in KINDS] == [1, 2, 3, 4, 5, 6]


@pytest.mark.requirement("registry:revision:one-write")
async def test_a_write_of_many_objects_is_one_revision(store: Store):
    await store.write([write("a"), write("b")], BY)
    change = await store.write(
        [write("c"), gone("a"), write("review", kind="task"), write("b", display_name="B")], BY
    )
    assert change is not None
    assert names(change) == [
        ("server", "a", False),
        ("server", "b", True),
        ("server", "c", True),
        ("task", "review", True),
    ]
    assert (await store.head()).revision == 2
    assert await store.changes(1) == (change,)


async def test_a_write_that_changes_nothing_moves_nothing(store: Store, clock: FakeClock):
    first = await store.write(
        [write("fs", stdio={"command": "a", "env": {"A": "1", "B": "2"}})], BY
    )
    clock.jump(60)
    same = write("fs", stdio={"command": "a", "env": {"B": "2", "A": "1"}})
    assert await store.write([same], BY) is None
    assert await store.write([gone("never")], BY) is None
    assert await store.write([], BY) is None
    view = await store.view()
    assert view.revision == 1
    assert first is not None
    assert view.objects["server", "fs"] == first.entries[0].stored


async def test_only_what_differs_is_part_of_a_change(store: Store):
    await store.write([write("a"), write("b")], BY)
    change = await store.write([write("a"), write("b", enabled=False)], BY)
    assert change is not None
    assert names(change) == [("server", "b", True)]
    assert (await store.view()).objects["server", "a"].revision == 1


async def test_one_and_true_are_not_the_same_value(store: Store):
    await store.write([write("review", kind="task", config={"depth": 1})], BY)
    assert await store.write([write("review", kind="task", config={"depth": True})], BY)


@pytest.mark.requirement("registry:expected-revision")
async def test_a_write_with_a_stale_expected_revision_changes_nothing(store: Store):
    await store.write([write("a")], BY)
    await store.write([write("b")], BY)
    await store.write([write("a", display_name="A")], BY)
    with pytest.raises(Conflict) as stale:
        await store.write([write("c"), write("a", enabled=False, expected=1)], BY)
    assert (stale.value.expected, stale.value.current) == (1, 3)
    assert stale.value.details["current_revision"] == 3
    with pytest.raises(Conflict):
        await store.write([write("a", expected=0)], BY)
    with pytest.raises(Conflict) as missing:
        await store.write([gone("never", expected=4)], BY)
    assert missing.value.current == 0
    view = await store.view()
    assert (view.revision, ("server", "c") in view.objects) == (3, False)
    assert await store.write([write("a", enabled=False, expected=3)], BY)
    assert await store.write([write("c", expected=0)], BY)
    assert await store.write([gone("a", expected=4)], BY)


async def test_a_write_planned_on_an_older_revision_changes_nothing(store: Store):
    first = (await store.head()).position
    await store.write([write("a")], BY, base=first)
    now = (await store.head()).position
    for base in (first, replace(now, mark=first.mark), replace(now, store_id="another")):
        with pytest.raises(HeadMoved) as moved:
            await store.write([write("b")], BY, base=base)
        assert moved.value.head == 1
    assert (await store.head()).revision == 1


async def test_one_object_cannot_be_written_twice_in_one_revision(store: Store):
    with pytest.raises(ValueError, match="twice"):
        await store.write([write("a"), gone("a")], BY)
    assert (await store.head()).revision == 0


async def test_listeners_hear_every_change_before_it_is_answered(store: Store):
    heard: list[Change] = []
    store.listen(heard.append)
    told = [await store.write([write("a", display_name=str(n))], BY) for n in range(3)]
    assert heard == told


async def test_changes_carry_who_when_and_why(store: Store, clock: FakeClock):
    clock.jump(5)
    await store.write([write("a")], BY)
    [change] = await store.changes(0)
    assert (change.actor, change.note, change.at) == ("ada", "for the test", clock.now())
    assert (await store.view()).objects["server", "a"].updated_at == clock.now()


async def test_a_deleted_object_comes_back_with_a_later_revision(store: Store):
    await store.write([write("a")], BY)
    await store.write([gone("a")], BY)
    await store.write([write("a", expected=0)], BY)
    assert (await store.view()).objects["server", "a"].revision == 3


async def test_every_revision_that_is_kept_can_be_read_back_whole(store: Store):
    views = [await store.view()]
    for writes in (
        [write("a"), write("b")],
        [write("a", display_name="A", owner="a.toml")],
        [gone("b")],
        [write("b", enabled=False), write("code", kind="profile")],
        [gone("a")],
    ):
        await store.write(writes, BY)
        views.append(await store.view())
    assert [await store.view(view.revision) for view in views] == views
    with pytest.raises(FutureRevision):
        await store.view(6)


async def test_compaction_by_count_keeps_the_state_at_its_floor(store: Store):
    for number in range(5):
        await store.write([write("a", display_name=str(number)), write(f"s{number}")], BY)
    await store.write([gone("s0"), gone("a")], BY)
    at_four, at_six = await store.view(4), await store.view()
    assert await store.compact(Retention(changes=2)) == 4
    assert await store.view(4) == at_four
    assert await store.view(6) == at_six
    assert [change.revision for change in await store.changes(4)] == [5, 6]
    with pytest.raises(Compacted) as compacted:
        await store.changes(3)
    assert compacted.value.floor == 4
    with pytest.raises(Compacted):
        await store.view(3)
    assert [change.revision for change in await store.history()] == [6, 5]
    assert await store.compact(Retention(changes=0)) == 6
    assert await store.view(6) == at_six
    assert await store.changes(6) == ()
    assert await store.compact(Retention(changes=KEEP_ALL)) == 6
    assert (await store.head()).revision == 6


async def test_compaction_by_age_forgets_what_is_older(store: Store, clock: FakeClock):
    await store.write([write("a")], BY)
    await store.write([gone("a")], BY)
    clock.jump(100)
    await store.write([write("b")], BY)
    assert await store.compact(Retention(seconds=200)) == 0
    assert await store.compact(Retention(seconds=50)) == 2
    assert set((await store.view(2)).objects) == set()
    assert [change.revision for change in await store.changes(2)] == [3]


YEAR = 365 * 86_400.0


@pytest.mark.requirement("registry:compaction:clock")
@pytest.mark.parametrize("first", [-YEAR, YEAR])
async def test_a_clock_that_jumps_and_is_set_right_takes_no_history_away(
    store: Store, clock: FakeClock, first: float
):
    await store.write([write("a")], BY)
    clock.jump(first)
    await store.write([write("b")], BY)
    assert await store.compact(Retention()) == 0
    clock.jump(-first)
    await store.write([write("c")], BY)
    assert await store.compact(Retention()) == 0
    assert [change.revision for change in await store.history()] == [3, 2, 1]


@pytest.mark.requirement("registry:compaction:clock")
async def test_history_with_a_wrong_date_in_it_still_grows_old(store: Store, clock: FakeClock):
    await store.write([write("a")], BY)
    clock.jump(-YEAR)
    await store.write([write("b")], BY)
    clock.jump(YEAR)
    await clock.advance(100)
    await store.write([write("c")], BY)
    assert await store.compact(Retention(seconds=50)) == 2


async def test_pages_of_changes_follow_each_other(store: Store):
    for number in range(7):
        await store.write([write("a", display_name=str(number))], BY)
    pages = [[c.revision for c in await store.changes(since, 3)] for since in (0, 3, 6, 7)]
    assert pages == [[1, 2, 3], [4, 5, 6], [7], []]
    assert [c.revision for c in await store.history(before=6, limit=2)] == [5, 4]
