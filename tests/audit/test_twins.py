"""What every ledger does: in memory, in a file, and in a database behind a journal."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule.audit.events import ConnectionMoved, SessionOpened, SessionRefusal
from bascule.audit.ledger import JsonLinesLedger, Ledger, MemoryLedger
from bascule.audit.log_lines import LoggedLedger
from bascule.audit.sqlite_ledger import SqliteLedger
from tests.audit.calls import Ended, Leaving, made
from tests.audit.ledgers import events as events_in
from tests.audit.ledgers import ledgers_of

KEY = bytes(32)
Events = Callable[[], Awaitable[list[dict[str, Any]]]]


@asynccontextmanager
async def memory(_folder: Path) -> AsyncGenerator[tuple[Ledger, Events], None]:
    ledger = MemoryLedger()

    async def events() -> list[dict[str, Any]]:
        return [msgspec.to_builtins(event) for event in ledger.events]

    yield ledger, events


@asynccontextmanager
async def file(folder: Path) -> AsyncGenerator[tuple[Ledger, Events], None]:
    ledger = JsonLinesLedger(folder / "ledger.jsonl")

    async def events() -> list[dict[str, Any]]:
        ledger.settle()
        return list(map(json.loads, (folder / "ledger.jsonl").read_bytes().splitlines()))

    yield ledger, events
    ledger.close()


@asynccontextmanager
async def database(folder: Path) -> AsyncGenerator[tuple[Ledger, Events], None]:
    ledger = await SqliteLedger(folder, key=KEY).open()

    async def events() -> list[dict[str, Any]]:
        await ledger.taken_in()
        with closing(sqlite3.connect(folder / "ledger.db")) as connection:
            rows = connection.execute("SELECT body FROM events ORDER BY number")
            return [json.loads(body) for (body,) in rows]

    yield ledger, events
    await ledger.close()


@asynccontextmanager
async def replica(folder: Path) -> AsyncGenerator[tuple[Ledger, Events], None]:
    async with ledgers_of("postgres") as ledgers:
        ledger = await ledgers.open(folder)

        async def events() -> list[dict[str, Any]]:
            await ledger.taken_in()
            return await events_in(ledgers, folder)

        yield ledger, events
        await ledger.close()


@asynccontextmanager
async def logged(folder: Path) -> AsyncGenerator[tuple[Ledger, Events], None]:
    async with database(folder) as (ledger, events):
        yield LoggedLedger(ledger), events


TWINS = [memory, file, database, replica, logged]


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__)
async def twin(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[Ledger, Events], None]:
    async with request.param(tmp_path) as found:
        yield found


def opened(number: int) -> SessionOpened:
    return SessionOpened(
        timestamp=1.5,
        session_id=f"s{number}",
        task_id="t",
        caller="alice",
        token_id=None,
        revision=number,
        mcp_effective_servers=("fs",),
        tool_count=None,
        decisions=(),
        warnings=(),
    )


def refused() -> SessionRefusal:
    return SessionRefusal(
        timestamp=1.5,
        session_id=None,
        task_id=None,
        caller="alice",
        token_id=None,
        revision=1,
        server_id=None,
        reason="unknown_task",
        message="no",
    )


def moved(reason: str) -> ConnectionMoved:
    return ConnectionMoved(
        timestamp=1.5,
        server_id="fs",
        old_state="connected",
        state="down",
        reason=reason,
        last_error=None,
    )


async def test_events_are_kept_in_their_order_and_what_came_of_calls_in_its_own(
    twin: tuple[Ledger, Events],
):
    ledger, events = twin
    ledger.session_opened(opened(1))
    ledger.session_refused(refused())
    for number in range(3):
        ledger.intent(Leaving(number))
        ledger.outcome(Ended(number))
    await ledger.note(made(1))
    ledger.connection_moved(moved(""))
    ledger.connection_moved(moved("list_timeout"))
    kinds = [(one["event"], one.get("request_id")) for one in await events()]
    ended = [("call", f"r{n}") for n in range(3)]
    assert [kind for kind in kinds if kind[0] == "call"] == ended
    assert [kind for kind in kinds if kind not in ended] == [
        ("session_opened", None),
        ("session_refused", None),
        *(("call_intent", f"r{n}") for n in range(3)),
        ("token_made", None),
        ("connection", None),
    ]
    assert all(kinds.index(("call_intent", id)) < kinds.index(("call", id)) for _, id in ended)
    assert kinds.index(ended[-1]) < kinds.index(("token_made", None))


async def test_an_intent_says_whose_call_it_is_and_that_nobody_approved_it(
    twin: tuple[Ledger, Events],
):
    ledger, events = twin
    ledger.intent(Leaving(7, token_id="tok-1"))
    [intent] = await events()
    assert intent == {
        "event": "call_intent",
        "timestamp": 1.5,
        "request_id": "r7",
        "session_id": "s",
        "task_id": "t",
        "caller": "alice",
        "token_id": "tok-1",
        "server_id": "fs",
        "tool_name": "read",
        "revision": 1,
        "arguments_digest": "d",
        "approved": False,
        "approval_id": None,
        "person": None,
    }


async def test_every_ledger_has_a_key_of_its_own_for_digests(twin: tuple[Ledger, Events]):
    ledger, _ = twin
    assert len(ledger.digest_key) == 32
    assert ledger.digest_key != MemoryLedger().digest_key


async def test_a_name_that_utf_8_cannot_say_is_written_and_takes_no_other_event_with_it(
    twin: tuple[Ledger, Events],
):
    ledger, events = twin
    ledger.outcome(Ended(1))
    ledger.outcome(Ended(2, arguments={"\ud800": ["string(1)", "\udfff"]}))
    ledger.session_opened(msgspec.structs.replace(opened(3), caller="al\ud800ice"))
    ledger.outcome(Ended(4))
    found = [event.get("request_id", "opened") for event in await events()]
    assert found == ["r1", "r2", "opened", "r4"]
