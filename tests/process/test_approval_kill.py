"""Each approval is used at most once, and no decision is lost, whoever is killed and when."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.verification import verify
from tests.process.approval_node import DEFINITIONS
from tests.process.approval_sites import Site, approval_site
from tests.process.nursery import nursery, worked
from tests.process.test_ledger_kill import chain, closed_well, digest
from tests.scale import scaled

KILLS = scaled(120)
#: Words after which a node is killed: at its start, in the midst of its work.
EARLY, LATE = 30, 400
#: In one of so many rounds what replicas share is killed, too.
CRASHES = 3


@pytest.fixture(params=["files", "replicas"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Site]:
    async with approval_site(request.param, tmp_path) as found:
        yield found


def executed(counted: Path, definition: str) -> list[bytes]:
    """Return the arguments of every execution of a tool that was defined so."""
    path = Path(f"{counted}.{definition}")
    return path.read_bytes().splitlines() if path.exists() else []


def texts(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.timeout(3_600)
@pytest.mark.requirement(
    "approval:survives-kill", "approval:grant:single-use", "approval:replicas:once"
)
async def test_each_approval_runs_at_most_once_as_it_was_approved_and_no_decision_is_lost(
    site: Site,
):
    rng = random.Random(16)
    said: list[str] = []
    for kill in range(KILLS // 2):
        lines = [f"{rng.choice(DEFINITIONS)} {kill} yes" for _ in site.nodes]
        after = [rng.randrange(LATE if rng.random() < 0.7 else EARLY) for _ in site.nodes]
        strikes = [site.crash if kill % CRASHES == 1 else None, None]
        nodes = [
            worked(node, line, words, halfway=strike)
            for node, line, words, strike in zip(site.nodes, lines, after, strikes, strict=True)
        ]
        said += [word for words in await asyncio.gather(*nodes) for word in words]
    for definition in DEFINITIONS:
        last = await asyncio.gather(*(worked(one, f"{definition} last yes") for one in site.nodes))
        assert all("all" in words for words in last)
        said += [word for words in last for word in words]
    assert not [word for word in said if word.startswith("broken")]

    check(await site.events(), said, site)


def check(events: list[dict[str, Any]], said: list[str], site: Site) -> None:
    """See that nothing ran twice, or unapproved, and that no decision was lost."""
    steps = [event for event in events if event["event"] == "approval"]
    states = Counter((step["approval_id"], step["state"]) for step in steps)
    assert set(states.values()) == {1}, "a step was made twice"
    decided = [tuple(word.split()[1:]) for word in said if word.startswith("decided ")]
    assert len(decided) >= site.calls
    assert set(decided) <= set(states), "a decision was lost"

    approved = Counter(bound(step) for step in steps if step["state"] == "approved")
    claimed = Counter(bound(step) for step in steps if step["state"] == "claimed")
    assert claimed <= approved
    assert set(approved.values()) == {1}
    check_intents(events, {id for id, state in states if state == "claimed"})
    named = dict(word.split()[1:] for word in said if word.startswith("definition "))
    runs = Counter(
        (digest(line), named[definition])
        for definition in DEFINITIONS
        for line in executed(site.counted, definition)
    )
    assert set(runs.values()) == {1}, "an approval was used twice"
    assert set(runs) <= set(claimed), "something ran that nobody approved"
    called = Counter(word.split()[1] for word in said if word.startswith("called "))
    assert set(called.values()) <= {1, 2}, "each definition of a call runs once"
    ran = [text for one in DEFINITIONS for text in texts(executed(site.counted, one))]
    assert called <= Counter(ran), "something was acknowledged that did not run"
    assert len(ran) >= site.calls // 4, "most were lost with who had claimed them"
    assert {text.partition("-")[0] for text in ran} == {"call"}, "others used an approval"
    assert "refused wrong_state" in said, "nobody raced"


def check_intents(events: list[dict[str, Any]], claimed: set[str]) -> None:
    """See that each claim has the intent of one call, and that no other call had an outcome.

    So what was claimed by one who died is not sent by another.
    """
    intents = [event for event in events if event["event"] == "call_intent"]
    assert Counter(intent["approval_id"] for intent in intents) == Counter(claimed)
    sent = Counter(
        event["request_id"]
        for event in events
        if event["event"] == "call" and event["status"] == "ok"
    )
    assert set(sent.values()) == {1}
    assert set(sent) <= {intent["request_id"] for intent in intents}


def bound(step: dict[str, Any]) -> tuple[str, str]:
    return step["arguments_digest"], step["definition_digest"]


@pytest.mark.timeout(600)
@pytest.mark.requirement("approval:epoch")
async def test_nothing_that_was_approved_runs_after_an_older_copy_was_put_back(tmp_path: Path):
    data, counted = tmp_path / "data", tmp_path / "counted"
    data.mkdir()
    await closed_well(data)
    copy = tmp_path / "copy.db"
    calls = scaled(300)
    async with nursery("approval_node", data, counted, calls) as process:
        await worked(process, "plain 1 yes", until="decided")
        with (
            closing(sqlite3.connect(data / "ledger.db")) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        await worked(process, "plain 2 yes")
        ran = texts(executed(counted, "plain"))
        assert ran
        shutil.copyfile(copy, data / "ledger.db")
        for name in ("ledger.db-wal", "ledger.db-shm", "ledger.anchors"):
            (data / name).unlink(missing_ok=True)
        said = await worked(process, "plain 3 no", after=8 * calls)
        assert any(word.startswith("mcp_approval_required") for word in said)
    assert texts(executed(counted, "plain")) == ran
    await closed_well(data)
    assert verify(data / "ledger.db").problems == ()
    assert "void" in {event.get("state") for event in chain(data)}
