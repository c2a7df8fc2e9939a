"""The registry's client against the registry's API, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import OPEN, GuardedApp, route
from bascule.asgi.json import json_response
from bascule.asgi.serve import Serving
from bascule.client.http import ApiClient, ApiError, Unreachable
from bascule.client.registry import RegistryClient
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.node_port import Told
from bascule.control.api.rest import registry_routes
from bascule.control.registry.plan import Draft
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author, Write
from bascule.model.json import is_array, is_object
from bascule.model.kinds import COLLECTIONS, KINDS, Kind
from bascule.model.server import ServerRecord, Stdio
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep
from tests.asgi.caller import bearer, make_tokens
from tests.control.registry.memory_store import MemoryStore
from tests.waits import SOON_SECONDS

STDIO = {"command": "true"}
STEP = TrialStep(step="resolve", ok=True, duration_ms=1.0)
RECORDS: dict[Kind, dict[str, Any]] = {
    "server": {"server_id": "a", "transport": "stdio", "stdio": STDIO},
    "task": {"task_id": "a", "mcp": {"enabled": True}},
    "profile": {"name": "a", "read_only": True},
    "backend": {"name": "a", "base_url": "https://a.example.com/v1"},
    "platform": {"tool_denylist": ["drop_*"]},
    "user": {"user_id": "a", "groups": ["g"]},
}
#: A field of each kind, and a value that it does not have above.
CHANGES: dict[Kind, dict[str, Any]] = {
    "server": {"display_name": "A"},
    "task": {"name": "A"},
    "profile": {"description": "A"},
    "backend": {"models": ["small"]},
    "platform": {"default_approval": "always"},
    "user": {"display_name": "A"},
}


class Node:
    """A node that has one tool to show."""

    async def test(self, server_id: str, tell: Told) -> Trial:
        tell(STEP)
        name = (server_id,)
        return Trial(
            ok=True, duration_ms=1.5, protocol="p", tool_count=1, tools=name, steps=(STEP,)
        )

    async def try_out(self, record: ServerRecord, tell: Told) -> Trial:
        return await self.test(f"a draft of {record.server_id}", tell)

    async def preview(self, server_id: str) -> tuple[ToolPreview, ...]:
        name = f"mcp__{server_id}__t"
        return (ToolPreview(tool="t", name=name, allowed=False, layer="server", reason="x"),)


class Wired:
    """A registry, and a client of it that came by HTTP."""

    def __init__(self, service: RegistryService, client: RegistryClient) -> None:
        self.service = service
        self.client = client


@pytest.fixture
async def wired() -> AsyncIterator[Wired]:
    tokens = make_tokens()
    token = (await bearer(tokens))["Authorization"].removeprefix("Bearer ")
    async with open_registry(MemoryStore()) as service:
        app = GuardedApp(registry_routes(service, clock=SYSTEM_CLOCK, node=Node()), tokens)
        async with Serving(app) as server, ApiClient(server.url, token) as api:
            yield Wired(service, RegistryClient(api))


def test_every_kind_has_its_collection():
    assert set(COLLECTIONS) == set(KINDS) == set(RECORDS) == set(CHANGES)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "platform"])
async def test_a_record_is_created_read_listed_changed_and_deleted(wired: Wired, kind: Kind):
    client = wired.client
    created = await client.create(kind, RECORDS[kind])
    assert created.revision == created.record["revision"] == 1
    with pytest.raises(ApiError) as twice:
        await client.create(kind, RECORDS[kind])
    assert (twice.value.status, twice.value.code) == (409, "already_exists")
    changed = await client.patch(kind, "a", CHANGES[kind], expected_revision=1)
    assert changed.record == await client.get(kind, "a")
    assert CHANGES[kind].items() <= changed.record.items()
    listing = await client.list(kind)
    assert (listing.revision, len(listing.items)) == (2, 1)
    with pytest.raises(ApiError) as late:
        await client.put(kind, "a", RECORDS[kind], expected_revision=1)
    assert (late.value.status, late.value.details["current_revision"]) == (412, 2)
    put = await client.put(kind, "a", RECORDS[kind], expected_revision=2)
    assert not (CHANGES[kind].items() <= put.record.items())
    with pytest.raises(ApiError):
        await client.delete(kind, "a", expected_revision=2)
    assert (await client.delete(kind, "a", expected_revision=3)).deleted == "a"
    with pytest.raises(ApiError) as gone:
        await client.get(kind, "a")
    assert gone.value.status == 404


async def test_the_platform_record_is_its_own_collection(wired: Wired):
    client = wired.client
    assert (await client.get("platform", "platform"))["revision"] == 0
    await client.put("platform", "platform", RECORDS["platform"], expected_revision=0)
    changed = await client.patch("platform", "platform", CHANGES["platform"])
    assert changed.record["tool_denylist"] == ["drop_*"]
    assert (await client.delete("platform", "platform")).revision == 3


async def test_only_a_record_that_is_new_is_put_with_revision_zero(wired: Wired):
    await wired.client.put("server", "a", RECORDS["server"], expected_revision=0)
    with pytest.raises(ApiError) as there:
        await wired.client.put("server", "a", RECORDS["server"], expected_revision=0)
    assert there.value.status == 412


async def test_a_record_is_adopted_from_its_file(wired: Wired):
    record = ServerRecord(server_id="a", transport="stdio", stdio=Stdio(command="true"))
    owned = Write(kind="server", id="a", record=record, owner="/mcp.d/a.toml")
    await wired.service.transact(lambda _: Draft((owned,)), Author("files"), as_owner=True)
    with pytest.raises(ApiError) as refused:
        await wired.client.delete("server", "a")
    assert refused.value.code == "owned_by_file"
    assert (await wired.client.adopt("server", "a")).record["owner"] is None


async def test_problems_come_back_with_their_paths_and_strict_is_passed_on(wired: Wired):
    with pytest.raises(ApiError) as wrong:
        await wired.client.create("server", {"server_id": "A"})
    assert wrong.value.status == 422
    problems = wrong.value.details["problems"]
    assert is_array(problems)
    paths = {problem.partition(":")[0] for problem in problems}
    assert {"server_id", "transport"} <= paths
    with pytest.raises(ApiError, match="surprise: unknown field"):
        await wired.client.create("server", {**RECORDS["server"], "surprise": 1})
    doubtful = {**RECORDS["server"], "http": {"url": "https://example.org/mcp"}}
    with pytest.raises(ApiError):
        await wired.client.create("server", doubtful, strict=True)
    assert "http" in (await wired.client.create("server", doubtful)).warnings[0]


async def test_many_records_are_taken_in_previewed_and_replaced(wired: Wired):
    client = wired.client
    many = {"servers": [RECORDS["server"]], "tasks": [RECORDS["task"]]}
    preview = await client.take_in(many, "preview")
    assert (preview.revision, "+ server a" in preview.diff.text) == (0, True)
    assert (await client.take_in(many)).revision == 1
    other = {**RECORDS["server"], "server_id": "b"}
    replaced = await client.take_in({"servers": [other]}, "replace")
    assert "- server a" in replaced.diff.text
    assert [record["server_id"] for record in (await client.list("server")).items] == ["b"]


async def test_the_past_is_listed_compared_and_brought_back(wired: Wired):
    client = wired.client
    await client.create("server", RECORDS["server"])
    await client.create("task", RECORDS["task"])
    await client.delete("server", "a")
    page = await client.history(limit=2)
    assert [change.revision for change in page.changes] == [3, 2]
    rest = await client.history(before=page.next_before)
    assert [change.upserts[0].id for change in rest.changes] == ["a"]
    diff = await client.diff(1, 3)
    assert (diff.old, diff.new) == (1, 3)
    assert "- server a" in diff.text
    back = await client.rollback(1, only=[("server", "a")], note="again")
    assert (back.revision, back.diff.new) == (4, 4)
    assert (await client.history(limit=1)).changes[0].note == "again"
    assert (await client.list("task")).items


async def test_a_node_is_asked_about_a_server(wired: Wired):
    await wired.client.create("server", RECORDS["server"])
    trial = await wired.client.test("a")
    assert (trial.ok, trial.tools, trial.steps) == (True, ("a",), (STEP,))
    draft = await wired.client.test_draft({**RECORDS["server"], "server_id": "b"})
    assert draft.tools == ("a draft of b",)
    [verdict] = await wired.client.tools("a")
    assert (verdict.name, verdict.allowed) == ("mcp__a__t", False)


async def test_changes_are_watched_and_resumed(wired: Wired):
    client = wired.client
    await client.create("server", RECORDS["server"])
    async with asyncio.timeout(SOON_SECONDS), aclosing(client.watch(0)) as events:
        first = await anext(events)
        assert (first.revision, first.kind, first.upserts) == (1, "server", ("a",))
        await client.create("task", RECORDS["task"])
        second = await anext(events)
        assert (second.revision, second.kind) == (2, "task")
    await client.delete("server", "a")
    async with (
        asyncio.timeout(SOON_SECONDS),
        aclosing(client.watch(last_event_id=second.id)) as events,
    ):
        assert (await anext(events)).deletes == ("a",)
    only = client.watch(0, kinds=["task"], objects=True)
    async with asyncio.timeout(SOON_SECONDS), aclosing(only) as events:
        [record] = (await anext(events)).upserts
        assert is_object(record)
        assert record["task_id"] == "a"


async def test_a_watch_that_cannot_be_followed_is_refused(wired: Wired):
    async with asyncio.timeout(SOON_SECONDS), aclosing(wired.client.watch(99)) as events:
        with pytest.raises(ApiError) as ahead:
            await anext(events)
    assert ahead.value.code == "future_revision"
    await wired.client.create("server", RECORDS["server"])
    other = wired.client.watch(1, store_id="another")
    async with asyncio.timeout(SOON_SECONDS), aclosing(other) as events:
        with pytest.raises(ApiError) as moved:
            await anext(events)
    assert (moved.value.status, moved.value.code) == (410, "store_changed")


async def test_a_key_is_never_more_than_a_key(wired: Wired):
    with pytest.raises(ApiError) as refused:
        await wired.client.get("server", "../tasks?x=1")
    assert refused.value.status == 404


async def test_an_answer_of_another_shape_is_not_the_registrys():
    async def anything(request: Request) -> Response:
        del request
        return json_response({"hello": "there"})

    strange = route("/admin/api/mcp/servers", anything, ["GET"], permission=OPEN)
    app = GuardedApp([strange], make_tokens())
    async with Serving(app) as server, ApiClient(server.url, None) as api:
        with pytest.raises(Unreachable):
            await RegistryClient(api).list("server")
