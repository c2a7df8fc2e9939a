"""A node that is killed while it keeps what it knows finds it at its next start."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bascule.node.sync.last_known_good import FILE_NAME, Knowledge, LastKnownGood
from tests.process.knowledge_keeper import NODE, TOKEN, known
from tests.process.nursery import nursery, worked
from tests.scale import scaled

MOST_WRITTEN = 12


def others_in(folder: Path) -> int:
    return sum(one.name != FILE_NAME for one in folder.iterdir())


@pytest.mark.requirement("sync:persisted:killed")
@pytest.mark.timeout(300)
async def test_whatever_a_killed_node_had_kept_is_loaded_whole(tmp_path: Path):
    path = tmp_path / FILE_NAME
    rng = random.Random(7)
    newest = 0
    async with nursery("knowledge_keeper", path) as process:
        for _ in range(scaled(200)):
            said = await worked(process, after=rng.randrange(1, MOST_WRITTEN))
            found = LastKnownGood(path, NODE, TOKEN).load()
            assert isinstance(found, Knowledge), found
            newest = found.snapshot.revision
            assert found == known(newest)
            assert newest - int(said[-1]) in (0, 1), "what was written is gone"
    assert newest > scaled(200)
    assert others_in(tmp_path) <= 1, "a killed writer's file is swept by the next"
