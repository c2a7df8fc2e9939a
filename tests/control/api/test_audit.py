"""The audit trail over HTTP: searched, followed, exported, verified and signed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.audit.ledger_file import FILE_NAME, MIGRATIONS
from bascule.control.api.audit import FILTERS, audit_routes
from bascule.db.sqlite import Database
from bascule.model.role import ROLES
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import AUDIT
from checks.openapi import describe
from tests.asgi.caller import make_tokens
from tests.audit.file_trail import FileTrail
from tests.audit.ledger_rows import (
    START,
    cut,
    intent,
    journal_id,
    opened,
    outcome,
    refused,
    spoil,
    token_made,
)
from tests.control.api.desk import Counter


class Office(Counter):
    """The audit trail behind its routes."""

    def __init__(self, trail: FileTrail) -> None:
        self.trail = trail
        routes = audit_routes(trail, clock=FakeClock())
        super().__init__(routes, make_tokens(), describe(routes))

    async def numbers(self, query: str = "") -> list[int]:
        answer = await self.ask("GET", f"{AUDIT}{query}", role="viewer")
        assert answer.status == 200, answer.body
        return [entry["number"] for entry in answer.json["entries"]]


@asynccontextmanager
async def open_office(folder: Path) -> AsyncGenerator[Office, None]:
    database = Database(folder / FILE_NAME)
    await database.open(MIGRATIONS)
    try:
        yield await Office(FileTrail(database)).ready()
    finally:
        await database.close()


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office, None]:
    async with open_office(tmp_path) as opened_office:
        yield opened_office


def data(event: Any) -> Any:
    return json.loads(event.data)


# --- searching


@pytest.mark.requirement("audit:query")
async def test_what_happened_is_listed_the_newest_first_and_each_call_once(office: Office):
    office.trail.live.add(journal_id(2))
    await office.trail.write(opened(), intent("s1-1"), outcome("s1-1"))
    await office.trail.write(intent("s1-2"), journal=2)
    answer = await office.ask("GET", AUDIT, role="viewer")
    entries = answer.json["entries"]
    assert [(one["number"], one["event"]["event"], one["status"]) for one in entries] == [
        (4, "call_intent", "running"),
        (3, "call", "ok"),
        (1, "session_opened", None),
    ]
    assert entries[1]["event"] == msgspec.to_builtins(outcome("s1-1"))
    assert entries[1]["at"] == "2023-11-14T22:13:20.000Z"
    assert (answer.json["tip"], answer.json["next_before"]) == (4, None)


async def test_pages_go_on_before_the_last_entry(office: Office):
    await office.trail.write(*(outcome(f"s1-{n}") for n in range(5)))
    first = (await office.ask("GET", f"{AUDIT}?limit=2")).json
    assert [entry["number"] for entry in first["entries"]] == [5, 4]
    assert first["next_before"] == 4
    assert await office.numbers("?limit=2&before=4") == [3, 2]
    last = (await office.ask("GET", f"{AUDIT}?limit=2&before=2")).json
    assert ([entry["number"] for entry in last["entries"]], last["next_before"]) == ([1], None)


FOUND = {
    "server_id=git": [2, 5],
    "tool_name=push": [2],
    "task_id=deploy": [2],
    "caller=bob": [2],
    "status=failed": [2],
    "status=unknown": [4],
    "code=mcp_timeout": [2],
    "request_id=s1-2": [2],
    "session_id=s1": [1, 2, 3],
    "approval_id=a7": [2],
    "token_id=t9": [6],
    "person=eve": [2],
    "event=call": [1, 2, 4],
    "event=session_refused": [5],
    "since=2023-11-14T22:13:24Z": [5, 6],
    f"until={START + 1}": [1, 2],
    f"since={START + 1}&until=2023-11-14T23:13:22%2B01:00": [2, 3],
    "server_id=git&event=session_refused": [5],
    "server_id=nowhere": [],
    "node=east": [],
}


@pytest.mark.requirement("audit:query")
async def test_every_filter_finds_what_it_says(office: Office):
    more: dict[str, Any] = {
        "server": "git",
        "tool": "push",
        "task": "deploy",
        "caller": "bob",
        "approval": "a7",
        "person": "eve",
        "timestamp": START + 1,
    }
    await office.trail.write(
        outcome("s1-1", timestamp=START),
        outcome("s1-2", "failed", "mcp_timeout", **more),
        opened("s1", timestamp=START + 2),
        intent("s2-1", timestamp=START + 3),
        refused(timestamp=START + 4),
        token_made(timestamp=START + 5),
    )
    for query, numbers in FOUND.items():
        assert await office.numbers(f"?{query}") == numbers[::-1], query
    named = {pair.partition("=")[0] for query in FOUND for pair in query.split("&")}
    assert named == set(FILTERS)


#: What is asked; the parameter that the answer must name.
MALFORMED = {
    "?sever_id=fs": "sever_id",
    "?server_id=fs&server_id=git": "server_id",
    "?server_id=": "server_id",
    f"?caller={'a' * 257}": "caller",
    "?status=done": "status",
    "?code=timeout": "code",
    "?event=calls": "event",
    "?since=yesterday": "since",
    "?since=nan": "since",
    "?until=2026-02-30T00:00:00Z": "until",
    "?until=2026-02-01T00:00:00": "until",
    "?before=-1": "before",
    "?before=last": "before",
    "?limit=0": "limit",
    "?limit=1001": "limit",
    "/watch?after=x": "after",
    "/watch?after=9": "after",
    "/watch?limit=3": "limit",
    "/export?format=csv": "format",
    "/export?status=": "status",
    "/s1-1?verbose=1": "verbose",
}


@pytest.mark.parametrize("place", MALFORMED)
async def test_what_cannot_be_understood_is_refused_by_name_and_never_left_out(
    office: Office, place: str
):
    await office.trail.write(outcome("s1-1"))
    answer = await office.ask("GET", f"{AUDIT}{place}")
    assert (answer.status, answer.code) == (400, "invalid_request"), answer.body
    assert answer.json["error"]["details"] == {"parameter": MALFORMED[place]}
    assert answer.json["error"]["message"].startswith(f"{MALFORMED[place]}: ")


async def test_a_misspelt_filter_is_told_the_nearest_one(office: Office):
    answer = await office.ask("GET", f"{AUDIT}?sever_id=fs")
    assert "did you mean 'server_id'?" in answer.json["error"]["message"]


@given(
    st.dictionaries(
        st.sampled_from([*FILTERS, "before", "limit"]),
        st.text(max_size=8)
        | st.sampled_from(["0", "1", "call", "ok", "mcp_timeout", "9999-12-31T23:59:59-23:59"]),
        max_size=3,
    )
)
async def test_whatever_is_asked_is_answered_or_refused_as_described(query: dict[str, str]):
    words = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    with TemporaryDirectory() as folder:
        async with open_office(Path(folder)) as office:
            await office.trail.write(intent("s1-1"), outcome("s1-1"))
            answer = await office.ask("GET", f"{AUDIT}?{words}")
    assert answer.status in {200, 400}, answer.body


# --- one call


@pytest.mark.requirement("audit:query")
async def test_the_life_of_one_call_is_told_in_order(office: Office):
    await office.trail.write(intent("s1-1"), intent("s1-2"), outcome("s1-1", "denied"))
    answer = await office.ask("GET", f"{AUDIT}/s1-1", role="approver")
    assert (answer.json["request_id"], answer.json["status"]) == ("s1-1", "denied")
    assert [entry["event"]["event"] for entry in answer.json["entries"]] == ["call_intent", "call"]
    missing = await office.ask("GET", f"{AUDIT}/s1-9")
    assert (missing.status, missing.code) == (404, "not_found")


# --- following


@pytest.mark.requirement("audit:query")
async def test_a_watch_tells_what_happens_from_now_on_and_calls_when_they_have_ended(
    office: Office,
):
    office.trail.live.add(journal_id(1))
    await office.trail.write(opened("before"))
    async with office.stream(f"{AUDIT}/watch") as stream:
        office.trail.waited_long.set()
        assert (await stream.next()).event == "bookmark"  # it has begun
        await office.trail.write(intent("s1-1"))
        await office.trail.write(outcome("s1-1"), opened("s2"))
        events = [await stream.next(), await stream.next()]
    assert [event.id for event in events] == ["3", "4"]
    assert data(events[0])["event"] == msgspec.to_builtins(outcome("s1-1"))


async def test_a_watch_is_resumed_after_the_last_event_that_was_seen(office: Office):
    await office.trail.write(*(outcome(f"s1-{n}") for n in range(4)))
    async with office.stream(f"{AUDIT}/watch?after=1") as stream:
        seen = [(await stream.next()).id for _ in range(2)]
    resumed = {"Last-Event-ID": seen[-1]}
    async with office.stream(f"{AUDIT}/watch?after=0", headers=resumed) as stream:
        rest = await stream.next()
    assert (seen, rest.id) == (["2", "3"], "4")


async def test_a_watch_hears_only_of_what_it_asked_for_and_bookmarks_tell_how_far_it_is(
    office: Office,
):
    await office.trail.write(opened(), outcome("s1-1", server="git"), outcome("s1-2"))
    async with office.stream(f"{AUDIT}/watch?after=0&server_id=git") as stream:
        first = await stream.next()
        office.trail.waited_long.set()
        bookmark = await stream.next()
    assert (first.id, bookmark.event, bookmark.id) == ("2", "bookmark", "3")
    assert data(bookmark) == {"number": 3}


async def test_rows_that_are_gone_cannot_be_followed_and_nobody_is_left_believing_it(
    office: Office,
):
    await office.trail.write(*(opened(f"s{n}") for n in range(5)))
    await office.trail.database.write(lambda connection: cut(connection, 3))
    gone = await office.ask("GET", f"{AUDIT}/watch?after=2")
    again = await office.ask("GET", f"{AUDIT}/watch", headers={"Last-Event-ID": "1"})
    assert [(one.status, one.code) for one in (gone, again)] == [(410, "compacted")] * 2
    assert "after=3" in gone.json["error"]["message"]
    async with office.stream(f"{AUDIT}/watch?after=3") as stream:
        assert (await stream.next()).id == "4"


async def test_a_revoked_token_hears_nothing_more(office: Office):
    minted = await office.tokens.mint("wall", "viewer")
    headers = {"Authorization": f"Bearer {minted.token}"}
    async with office.stream(f"{AUDIT}/watch?after=0", headers=headers) as stream:
        await office.trail.write(opened("s1"))
        assert (await stream.next()).id == "1"
        await office.tokens.revoke(minted.record.id)
        await office.trail.write(opened("secret"))
        last = await stream.next()
    assert (last.event, data(last)["error"]["code"]) == ("error", "unauthenticated")


# --- export, verify, checkpoint


@pytest.mark.requirement("audit:query")
async def test_an_export_is_every_row_on_a_line_or_those_that_are_asked_for(office: Office):
    await office.trail.write(opened(), intent("s1-1"), outcome("s1-1"))
    whole = await office.ask("GET", f"{AUDIT}/export")
    assert (whole.status, whole.header("content-type")) == (200, "application/jsonl")
    rows = [json.loads(line) for line in whole.body.splitlines()]
    assert [set(row) for row in rows] == [{"number", "journal", "place", "hash", "body"}] * 3
    assert json.loads(rows[2]["body"]) == msgspec.to_builtins(outcome("s1-1"))
    some = await office.ask("GET", f"{AUDIT}/export?event=call_intent")
    assert [json.loads(line)["number"] for line in some.body.splitlines()] == [2]


async def test_an_export_of_nothing_is_empty(office: Office):
    answer = await office.ask("GET", f"{AUDIT}/export?server_id=nowhere")
    assert (answer.status, answer.body) == (200, b"")


async def test_a_verification_is_passed_on(office: Office):
    await office.trail.write(opened())
    good = await office.ask("POST", f"{AUDIT}/verify", role="viewer")
    assert (good.status, good.json["ok"], good.json["rows"]) == (200, True, 1)
    spoil(office.trail.database.path, 1, b"{}")
    bad = await office.ask("POST", f"{AUDIT}/verify", role="viewer")
    assert (bad.status, bad.json["ok"], bad.json["problems"][0]["row"]) == (200, False, 1)


@pytest.mark.requirement("audit:verify:progress")
async def test_a_verification_tells_how_far_it_is_to_whoever_asks_for_a_stream(office: Office):
    await office.trail.write(*(opened(f"s{n}") for n in range(3)))
    streamed = {"Accept": "text/event-stream"}
    async with office.stream(f"{AUDIT}/verify", method="POST", headers=streamed) as stream:
        events = [await stream.next()]
        while events[-1].event == "progress":
            events.append(await stream.next())
    assert data(events[0]) == {"checked": 0, "total": 3}
    assert (events[-1].event, data(events[-1])["rows"]) == ("result", 3)


async def test_a_verification_ends_when_nobody_waits_for_it(office: Office):
    office.trail.endless = True
    streamed = {"Accept": "text/event-stream"}
    async with office.stream(f"{AUDIT}/verify", method="POST", headers=streamed) as stream:
        assert (await stream.next()).event == "progress"
    assert office.trail.verifying == 0
    office.trail.endless = False
    assert (await office.ask("POST", f"{AUDIT}/verify")).json["ok"]


async def test_a_checkpoint_is_signed_by_whoever_looks_after_the_ledger(office: Office):
    nothing = await office.ask("POST", f"{AUDIT}/checkpoint", {})
    await office.trail.write(opened())
    made = await office.ask("POST", f"{AUDIT}/checkpoint", {"new_key": True})
    assert (nothing.json, made.json) == ({"anchor": None}, {"anchor": '{"kind":"checkpoint"}'})
    assert office.trail.checkpoints == [False, True]
    for body, code in ({"key": True}, "invalid_record"), ({"new_key": 1}, "invalid_record"):
        assert (await office.ask("POST", f"{AUDIT}/checkpoint", body)).code == code
    assert len(office.trail.checkpoints) == 2


async def test_clients_and_nodes_read_nothing_and_only_administrators_sign(office: Office):
    await office.trail.write(outcome("s1-1"))
    reading = ["", "/s1-1", "/export", "/watch"]
    for role in ("client", "node"):
        answers = [await office.ask("GET", f"{AUDIT}{place}", role=role) for place in reading]
        answers.append(await office.ask("POST", f"{AUDIT}/verify", role=role))
        assert [answer.code for answer in answers] == ["forbidden"] * 5
    for role in set(ROLES) - {"admin"}:
        answer = await office.ask("POST", f"{AUDIT}/checkpoint", {}, role=role)
        assert answer.code == "forbidden"
    assert office.trail.checkpoints == []
    assert (await office.ask("GET", AUDIT, role=None)).code == "unauthenticated"


# --- limited to tasks


async def limited(office: Office, *tasks: str) -> dict[str, str]:
    minted = await office.tokens.mint("limited", "viewer", tasks=tasks)
    return {"Authorization": f"Bearer {minted.token}"}


@pytest.mark.requirement("approval:tasks")
async def test_who_is_limited_to_tasks_finds_nothing_of_others_in_the_audit_trail(office: Office):
    await office.trail.write(intent("r1", task="home"), token_made(), opened())
    await office.trail.write(
        outcome("r1", task="home"), intent("r2", task="work"), outcome("r2", task="work")
    )
    home = await limited(office, "home", "elsewhere")

    async def get(path: str) -> Any:
        return await office.ask("GET", f"{AUDIT}{path}", role=None, headers=home)

    for query in ("", "?event=call_intent", "?task_id=work", "?request_id=r2"):
        found = (await get(query)).json["entries"]
        assert {one["event"]["task_id"] for one in found} <= {"home"}, query
    assert len((await get("")).json["entries"]) == 1
    assert (await get("/r1")).status == 200
    assert (await get("/r2")).status == 404
    lines = (await get("/export")).body.splitlines()
    assert len(lines) == 2
    assert b"work" not in b"".join(lines)
