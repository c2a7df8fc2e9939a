"""What a node takes of a registry, and what it doubts."""

from __future__ import annotations

import pytest

from bascule import Server
from bascule.model.platform import PlatformRecord
from bascule.model.server import ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.node.sync.judging import Implausible, by_command, by_restart, doubt_about

NOTES: dict[str, ServerRecord] = {"notes": Server.stdio("notes", "notes")}
PRESENT = Snapshot(store_id="a", revision=9, mark="m9", servers=NOTES)
UNMARKED = Snapshot(store_id="a", revision=9, servers=NOTES)

TAKEN = {
    "the same": (PRESENT, PRESENT),
    "the same store further on": (
        PRESENT,
        Snapshot(store_id="a", revision=12, mark="m12", servers=NOTES),
    ),
    "the same store further on, emptied by revisions that are marked": (
        PRESENT,
        Snapshot(store_id="a", revision=12, mark="m12"),
    ),
    "the same revision of a registry that knows no marks": (PRESENT, UNMARKED),
    "the same revision of a registry that knows marks now": (UNMARKED, PRESENT),
    "a store that replaces the present one": (
        PRESENT,
        Snapshot(store_id="b", revision=2, mark="n2", predecessor="a", servers=NOTES),
    ),
    "anything, where there was no registry yet": (
        Snapshot(),
        Snapshot(store_id="b", revision=2, mark="n2", servers=NOTES),
    ),
    "an empty registry that stays empty": (
        Snapshot(store_id="a", revision=1),
        Snapshot(store_id="a", revision=2, platform=PlatformRecord(tool_denylist=("x",))),
    ),
}

DOUBTED = {
    "an older revision": (
        PRESENT,
        Snapshot(store_id="a", revision=8, mark="m8", servers=NOTES),
        "back at revision 8",
    ),
    "the same revision with another mark": (
        PRESENT,
        Snapshot(store_id="a", revision=9, mark="x9", servers=NOTES),
        "a-9-x9, which is another revision than a-9-m9",
    ),
    "another store": (
        PRESENT,
        Snapshot(store_id="b", revision=12, mark="n12", servers=NOTES),
        "another store (b-12-n12) that does not say it replaces a",
    ),
    "a store that replaces another one": (
        PRESENT,
        Snapshot(store_id="b", revision=12, mark="n12", predecessor="c", servers=NOTES),
        "does not say it replaces a",
    ),
    "another store without any record": (
        PRESENT,
        Snapshot(store_id="b", revision=0, mark="n0"),
        "without any record",
    ),
    "no record any more, and no marks that show how that came": (
        UNMARKED,
        Snapshot(store_id="a", revision=12),
        "no records",
    ),
}


@pytest.mark.requirement("sync:implausible")
@pytest.mark.parametrize("case", TAKEN)
def test_what_follows_or_says_that_it_replaces_is_taken(case: str):
    present, offered = TAKEN[case]
    assert doubt_about(present, offered) is None


@pytest.mark.requirement("sync:implausible")
@pytest.mark.parametrize("case", DOUBTED)
def test_anything_else_is_doubted_in_words_that_name_it(case: str):
    present, offered, words = DOUBTED[case]
    doubt = doubt_about(present, offered)
    assert doubt is not None
    assert words in doubt


def test_a_node_in_a_program_is_restarted():
    error = Implausible("it is older", by_restart(PRESENT, Snapshot(store_id="b")))
    assert "what this node had goes on serving" in str(error)
    assert str(error).endswith("restart this node to take what it has")


@pytest.mark.requirement("sync:store-restored")
def test_a_node_process_names_the_commands_that_end_a_doubt():
    copy = Snapshot(store_id="a", revision=8, mark="m8")
    for offered in (None, copy, Snapshot(store_id="b")):
        words = by_command(PRESENT, offered)
        assert "`bascule node accept`" in words
        assert "`bascule registry announce --succeeds a`" in words
