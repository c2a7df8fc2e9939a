"""What a server can do at each level of isolation, tried by a probe: the promises of the page."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.process import isolation_table as table
from tests.process.isolation_node import KEEP_ROOT

#: Not kept from a server at ``landlock``: what only a namespace keeps, and what Landlock leaves.
LANDLOCK_LEAVES = {
    "use shared memory of the machine",
    "see that the key is there",
    "change the mode of the key",
    "watch what changes in the data directory",
}
#: Kept from a server by limits alone, whoever the node is.
LIMITS_KEEP = {
    "start many processes",
    "use 4 GB of memory",
    "use files that the node left open",
    "outlive the server",
    "gain rights from a set-user-id program",
    "mount a file system",
    "open a raw socket",
    "make a device",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", table.users())
@pytest.mark.requirement("process:sandbox:probe")
@pytest.mark.requirement("process:sandbox:home-size")
async def test_each_level_stops_what_the_page_says(who: str):
    results = await table.probe(table.users()[who])
    for level, found in results.items():
        if "refused" in found:  # not on this machine: it is said, and nothing ran
            assert f"{level} does not work here" in found["refused"]
            continue
        attempts = (*found["attempts"], *found["fills"])
        worked = {words for words in attempts if table.cell(found, words) == "works"}
        assert len(attempts) >= 44
        if level != "none":
            assert_ended_in_time(found["fills"])
        if level in ("namespaces", "bwrap"):
            assert worked == set()
        elif level == "landlock":
            assert worked <= LANDLOCK_LEAVES
        elif level == "limits":
            assert not worked & LIMITS_KEEP
        else:
            assert "read the node's key" in worked  # the probe does try
    if table.kernel() in table.written():
        assert table.promises(table.render(who, results)) == table.promises(table.written_of(who))


@pytest.mark.timeout(120)
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to stay root")
@pytest.mark.parametrize("level", ["landlock", "namespaces", "bwrap"])
async def test_a_server_that_stays_root_for_its_files_gets_no_further(level: str):
    found = await table.run(level, "", **{KEEP_ROOT: "yes"})
    if "refused" in found:
        assert f"{level} does not work here" in found["refused"]
        return
    assert "it runs as root, without capabilities" in found["standing"][1]
    worked = {words for words, why in found["attempts"].items() if not why}
    granted = {"write outside of what was granted"}  # to that folder it was
    assert worked == granted | (LANDLOCK_LEAVES if level == "landlock" else set())


def assert_ended_in_time(found: dict[str, Any]) -> None:
    """Each way to fill the disk has ended, in seconds of the rhythm of looks: no real time."""
    plainly = found["fill the disk through HOME"]
    assert "its HOME and TMPDIR are larger than sandbox.home_mb = 32" in plainly["excess"]
    for way, filled in found.items():
        assert filled["excess"].startswith("the server was ended: it"), way
        assert "sandbox.home_mb = 32" in filled["excess"], way
        assert filled["seconds"] <= table.ENDED_WITHIN, way
        assert filled["status"] != 0, way
