"""What was written down before a call left is in the ledger, whoever is killed and when."""

from __future__ import annotations

import hmac
import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.audit.chain import GENESIS, columns, link
from bascule.audit.intake import Intake
from bascule.audit.journal import Journal
from bascule.audit.ledger_file import SEARCHED
from bascule.audit.sqlite_ledger import SqliteLedger
from bascule.clock import SYSTEM_CLOCK
from tests.process.ledger_node import AT_ONCE, KEY
from tests.process.nursery import nursery, worked
from tests.scale import scaled

#: Words of an ordinary start up to its first call, and of one under load.
EARLY, LATE = 12, 600
#: Outcomes that wait for company, when a process is killed.
WAITING = 128


def chain(data: Path) -> list[dict[str, Any]]:
    """Return the events of a ledger, whose chain and columns must be whole."""
    before, found = GENESIS, list[dict[str, Any]]()
    names = ", ".join(SEARCHED)
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        query = f"SELECT number, journal, place, hash, body, {names} FROM events ORDER BY number"  # noqa: S608 - constants
        for number, journal, place, hash, body, *searched in connection.execute(query):
            assert number == len(found) + 1
            before = link(before, number, journal, place, body)
            assert hash == before
            found.append(json.loads(body))
            assert tuple(searched) == columns(body)
    return found


def digest(arguments: bytes, key: bytes = KEY) -> str:
    """Return what an intent says of arguments, without the bridge."""
    sent = json.dumps(json.loads(arguments), separators=(",", ":")).encode()
    return hmac.digest(hmac.digest(key, b"arguments", "sha256"), sent, "sha256").hex()


async def closed_well(data: Path) -> None:
    """Open the ledger and close it: what the dead left is taken in, and no journal is left."""
    await (await SqliteLedger(data, key=KEY).open()).close()


@pytest.mark.timeout(600)
@pytest.mark.requirement("audit:ledger:survives-kill", "call:intent-before-dispatch")
async def test_every_execution_has_its_intent_and_every_intent_one_row_after_any_kill(
    tmp_path: Path,
):
    rng = random.Random(15)
    counted = tmp_path / "counted"
    words = Counter[str]()
    async with nursery("ledger_node", tmp_path, counted) as process:
        for kill in range(scaled(100)):
            after = rng.randrange(LATE if kill % 2 == 0 else EARLY)
            words.update(word.split()[0] for word in await worked(process, after=after))
    assert words["called"] > scaled(100)
    await closed_well(tmp_path)
    assert list((tmp_path / "journal").iterdir()) == []

    events = chain(tmp_path)
    kinds = {event["event"] for event in events}
    assert kinds == {"call_intent", "call", "session_opened", "tools_listed"}
    intents = [event for event in events if event["event"] == "call_intent"]
    outcomes = Counter(event["request_id"] for event in events if event["event"] == "call")
    executions = [digest(line) for line in counted.read_bytes().splitlines()]
    written = [event["arguments_digest"] for event in intents]
    assert len(set(executions)) == len(executions) >= words["called"]
    assert set(executions) <= set(written), "a call left that nobody wrote down"
    assert len(set(written)) == len(written), "an intent was taken in twice"
    requests = [event["request_id"] for event in intents]
    assert len(set(requests)) == len(requests)
    assert set(outcomes) <= set(requests)
    assert set(outcomes.values()) == {1}
    unknown = len(requests) - len(outcomes)
    assert 0 < unknown <= scaled(100) * (AT_ONCE + WAITING)


def large_journal(data: Path, events: int) -> None:
    """Leave what takes several transactions to take in, as a process does that was killed."""
    journal = Journal(data / "journal", KEY, segment_bytes=300_000)
    with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as connection:
        Intake(data / "journal", KEY, SYSTEM_CLOCK).register(connection, journal)
    for number in range(events):
        event = {"event": "call_intent", "number": number, "text": "x" * 200}
        journal.append([json.dumps(event).encode()])
    journal.close()


@pytest.mark.timeout(600)
@pytest.mark.requirement("audit:ledger:survives-kill")
async def test_who_takes_in_a_journal_of_the_dead_may_be_killed_as_often_as_one_likes(
    tmp_path: Path,
):
    await closed_well(tmp_path)
    large_journal(tmp_path, 20_000)
    async with nursery("ledger_node", tmp_path, tmp_path / "counted") as process:
        for after in range(scaled(100)):
            await worked(process, after=after % EARLY)
    await closed_well(tmp_path)
    assert list((tmp_path / "journal").iterdir()) == []
    found = [event["number"] for event in chain(tmp_path) if "number" in event]
    assert found == list(range(20_000))
