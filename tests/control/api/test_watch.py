"""The watch over HTTP: every revision once and whole, resumed where it broke off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.control.registry.store import Retention
from tests.control.api.desk import ADMIN, PUBLIC, SERVERS, Desk
from tests.control.registry.build import server

WATCH = f"{PUBLIC}/watch"


def data(event: Any) -> Any:
    return json.loads(event.data)


@pytest.mark.requirement("admin:public:watch")
async def test_a_watch_streams_changes_after_a_revision(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/a", server("a"))
    await desk.ask("PUT", f"{SERVERS}/b", server("b"))
    async with desk.stream(f"{WATCH}?since=1") as stream:
        second = await stream.next()
        await desk.ask("DELETE", f"{SERVERS}/a")
        third = await stream.next()

    assert data(second) == {"revision": 2, "kind": "server", "upserts": ["b"], "deletes": []}
    assert data(third) == {"revision": 3, "kind": "server", "upserts": [], "deletes": ["a"]}
    view = desk.service.view
    assert (second.event, third.id) == ("message", f"{view.store_id}-3-{view.mark}")


@pytest.mark.requirement("admin:public:watch")
async def test_a_reader_resumes_after_the_last_event_it_saw(desk: Desk):
    for name in ("a", "b", "c"):
        await desk.ask("PUT", f"{SERVERS}/{name}", server(name))
    async with desk.stream(f"{WATCH}?since=0") as stream:
        first = await stream.next()
    async with desk.stream(f"{WATCH}?since=0", headers={"Last-Event-ID": first.id}) as stream:
        again = [data(await stream.next())["revision"] for _ in range(2)]
    older = [str(2), f"{desk.service.view.store_id}-2"]
    plain: list[int] = []
    for last in older:
        async with desk.stream(WATCH, headers={"Last-Event-ID": last}) as stream:
            plain.append(data(await stream.next())["revision"])

    assert (again, plain) == ([2, 3], [3, 3])


@pytest.mark.requirement("registry:position")
async def test_a_reader_of_another_history_is_not_led_on(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/a", server("a"))
    await desk.ask("PUT", f"{SERVERS}/b", server("b"))
    store_id = desk.service.view.store_id
    mark = "0123456789abcdef"
    refused = [
        await desk.ask("GET", f"{WATCH}?since=1&store_id={store_id}&mark={mark}"),
        await desk.ask("GET", f"{WATCH}?since=1&mark={mark}"),
        await desk.ask("GET", f"{WATCH}?since=3&store_id={store_id}&mark={mark}"),
        await desk.ask("GET", WATCH, headers={"Last-Event-ID": f"{store_id}-1-{mark}"}),
    ]

    assert [(one.status, one.code) for one in refused] == [(410, "store_changed")] * 4
    cases = [one.json["error"]["details"]["case"] for one in refused]
    assert cases == ["other_copy", "other_copy", "older_copy", "other_copy"]


@pytest.mark.parametrize("last", ["x", "a-b-c", "1-2-3-4", "-", "a-", "a--1"])
async def test_an_id_that_is_of_no_event_is_refused(desk: Desk, last: str):
    answer = await desk.ask("GET", WATCH, headers={"Last-Event-ID": last})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "Last-Event-ID" in answer.json["error"]["message"]


async def test_a_revision_of_two_kinds_gets_its_id_with_its_last_event(desk: Desk):
    body = {"servers": [server("a")], "tasks": [{"task_id": "t"}]}
    async with desk.stream(f"{WATCH}?since=0") as stream:
        await desk.ask("POST", f"{ADMIN}/import", body)
        events = [await stream.next(), await stream.next()]

    assert [(data(e)["revision"], data(e)["kind"]) for e in events] == [(1, "server"), (1, "task")]
    assert [e.id is not None for e in events] == [False, True]


@pytest.mark.parametrize("kinds", ["task", "tasks,profile"])
async def test_a_watch_of_some_kinds_hears_of_no_others(desk: Desk, kinds: str):
    async with desk.stream(f"{WATCH}?since=0&kind={kinds}") as stream:
        await desk.ask("PUT", f"{SERVERS}/a", server("a"))
        await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t"})
        event = await stream.next()

    assert (data(event)["revision"], data(event)["upserts"]) == (2, ["t"])


async def test_whole_records_come_masked_to_everybody_but_a_node(desk: Desk):
    body = server("a", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    await desk.ask("PUT", f"{SERVERS}/a", body)
    seen: list[str] = []
    for role in ("viewer", "node"):
        async with desk.stream(f"{WATCH}?since=0&include_objects=true", role=role) as stream:
            [record] = data(await stream.next())["upserts"]
            seen.append(record["stdio"]["env"]["TOKEN"])
            assert "status" not in record  # it moves without a revision: no event would tell

    assert seen == ["***", "s3cret"]


async def test_an_idle_watch_carries_bookmarks(desk: Desk):
    await desk.ask("PUT", f"{SERVERS}/a", server("a"))
    async with desk.stream(f"{WATCH}?since=0&kind=task") as stream:
        await desk.clock.advance(10.0)
        event = await stream.next()

    assert (event.event, data(event)["revision"], data(event)["kind"]) == (
        "bookmark",
        1,
        "bookmark",
    )
    assert event.id == f"{desk.service.view.store_id}-1-{desk.service.view.mark}"


@pytest.mark.requirement("admin:public:watch", "registry:watch:since-too-old")
async def test_what_cannot_be_followed_is_refused_before_the_stream(desk: Desk):
    for name in ("a", "b", "c"):
        await desk.ask("PUT", f"{SERVERS}/{name}", server(name))
    await desk.service._store.compact(Retention(changes=1))
    desk.service._hub._ring.clear()

    compacted = await desk.ask("GET", f"{WATCH}?since=0")
    other = await desk.ask("GET", f"{WATCH}?since=3&store_id=another")
    resumed = await desk.ask("GET", WATCH, headers={"Last-Event-ID": "another-3"})
    future = await desk.ask("GET", f"{WATCH}?since=99")

    assert (compacted.status, compacted.code) == (410, "compacted")
    assert compacted.json["error"]["details"]["compacted_revision"] == 2
    assert [(a.status, a.code) for a in (other, resumed)] == [(410, "store_changed")] * 2
    assert (future.status, future.code) == (400, "future_revision")


async def test_a_revoked_token_is_told_nothing_more(desk: Desk):
    secret = server("a", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})
    minted = await desk.tokens.mint("n", "node")
    headers = {"Authorization": f"Bearer {minted.token}"}
    async with desk.stream(f"{WATCH}?since=0&include=objects", headers=headers) as stream:
        await desk.ask("PUT", f"{ADMIN}/tasks/t", {"task_id": "t"})
        assert data(await stream.next())["kind"] == "task"
        await desk.tokens.revoke(minted.record.id)
        await desk.ask("PUT", f"{SERVERS}/a", secret)
        last = await stream.next()

    assert (last.event, data(last)["error"]["code"]) == ("error", "unauthenticated")
    assert b"s3cret" not in last.data
