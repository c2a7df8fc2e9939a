"""A snapshot of the registry, and the way from one to another."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bascule.errors import InvalidRecord
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import Budgets, Stdio
from bascule.model.snapshot import Snapshot, diff_snapshots
from bascule.model.task import TaskRecord
from bascule.node.assembly import read_records
from tests.policy.build import registry, server


def test_equal_snapshots_do_not_differ():
    old, new = registry(server("a")), registry(server("a"), revision=9)
    change = diff_snapshots(old, new)
    assert not change
    assert str(change) == "no change"


def test_a_difference_names_what_was_added_changed_and_removed():
    old = registry(server("a"), server("b"), server("c"))
    new = registry(server("a"), server("b", enabled=False), server("d"))
    (change,) = diff_snapshots(old, new).changes
    assert (change.kind, change.added, change.changed, change.removed) == (
        "server",
        ("d",),
        ("b",),
        ("c",),
    )
    assert str(diff_snapshots(old, new)).splitlines() == [
        "+ server d",
        "~ server b",
        "- server c",
    ]


def test_every_kind_is_compared():
    new = Snapshot(
        tasks={"t": TaskRecord(task_id="t")},
        profiles={"p": ProfileRecord(name="p")},
        platform=PlatformRecord(tool_denylist=("x",)),
    )
    assert [change.kind for change in diff_snapshots(Snapshot(), new).changes] == [
        "task",
        "profile",
        "platform",
    ]


def test_only_a_changed_connection_needs_a_new_one():
    old = server("a")
    moved = replace(old, stdio=Stdio(command="other"))
    tuned = replace(old, budgets=Budgets(max_concurrency=2), allowed_tools=("x",))
    assert diff_snapshots(registry(old), registry(moved)).reconnect == ("a",)
    assert diff_snapshots(registry(old), registry(tuned)).reconnect == ()
    assert diff_snapshots(registry(old), registry(tuned))


def test_a_new_or_removed_server_is_not_a_reconnect():
    assert diff_snapshots(registry(), registry(server("a"))).reconnect == ()
    assert diff_snapshots(registry(server("a")), registry()).reconnect == ()


@pytest.mark.requirement("record:server-id:unique")
def test_two_records_of_one_id_cannot_stand_in_one_snapshot():
    with pytest.raises(InvalidRecord, match="'a'"):
        read_records([server("a"), server("b"), server("a", enabled=False)])
    assert list(read_records([server("a"), server("b")]).servers) == ["a", "b"]


@pytest.mark.requirement("record:tool-namespace:unique")
def test_two_records_of_one_namespace_cannot_stand_in_one_snapshot():
    with pytest.raises(InvalidRecord, match="tool_namespace"):
        read_records([server("a"), server("b", tool_namespace="mcp.a")])
