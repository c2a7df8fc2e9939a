"""Which backend answers for a model, what is listed, and that changed records are followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.loop.backend import UpstreamFailed
from bascule.loop.backends import FAILED_SECONDS, LIST_SECONDS, Backends, UnknownModel
from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.model.snapshot import Snapshot
from bascule.outbound.rules import NodeRules
from bascule.testing import FakeClock, Gate, ScriptedUpstream, fails, says, sends
from tests.waits import SOON_SECONDS

ASKED: Mapping[str, Any] = {"model": "m", "messages": []}


class World:
    """A registry's snapshot that a test may change."""

    def __init__(self, *records: BackendRecord) -> None:
        self.clock = FakeClock()
        self.set(*records)
        self.backends = Backends(
            lambda: self.now,
            rules=NodeRules(),
            built_in={REHEARSAL: Rehearsal(clock=self.clock)},
            environ={},
            clock=self.clock,
        )

    def set(self, *records: BackendRecord) -> None:
        self.now = Snapshot(backends={record.name: record for record in records})

    async def chosen(self, model: str) -> str:
        chosen = await self.backends.choose(model)
        return f"{chosen.upstream.name} {chosen.model}"

    async def refused(self, model: str) -> UnknownModel:
        with pytest.raises(UnknownModel) as raised:
            await self.backends.choose(model)
        return raised.value

    async def ids(self) -> list[str]:
        return [str(row["id"]) for row in await self.backends.models()]


@asynccontextmanager
async def world(*records: BackendRecord) -> AsyncGenerator[World]:
    made = World(*records)
    try:
        yield made
    finally:
        await made.backends.close()


def backend(name: str, *models: str, url: str = "http://127.0.0.1:9/v1", **more: Any) -> Any:
    return BackendRecord(name=name, base_url=url, models=models, **more)


# --- choosing


@pytest.mark.requirement("chat:backends")
async def test_a_backend_is_chosen_by_its_name_or_by_a_model_that_only_it_lists():
    async with world(backend("a", "big", "both"), backend("b", "small", "both")) as here:
        assert await here.chosen("a/big") == "a big"
        assert await here.chosen("b/both") == "b both"
        assert await here.chosen("big") == "a big"
        assert await here.chosen("small") == "b small"


async def test_a_model_that_two_list_is_refused_with_both_ways_to_name_it():
    async with world(backend("a", "both"), backend("b", "both")) as here:
        error = await here.refused("both")
    assert error.near == ("a/both", "b/both")
    assert "several backends: choose one of a/both, b/both" in str(error)


async def test_an_unknown_model_is_refused_with_near_names():
    async with world(backend("a", "llama-3-8b")) as here:
        error = await here.refused("lama-3-8b")
        assert (error.near, error.code) == (("a/llama-3-8b",), "unknown_model")
        assert "did you mean a/llama-3-8b?" in str(error)
        far = await here.refused("zzz")
        assert far.near == ()
        assert "a/llama-3-8b (GET /v1/models lists all)" in str(far)
        assert len(str(await here.refused("z" * 1_000_000))) < 1000


async def test_a_backends_name_that_is_misspelt_is_told_with_the_model():
    async with world(backend("local"), backend("openai", "gpt-5")) as here:
        assert (await here.refused("lcoal/anything")).near == ("local/anything",)


async def test_a_name_is_not_compared_with_any_number_of_others():
    names = [f"model-{number:05}" for number in range(10_000)]
    async with world(backend("a", *names)) as here:
        assert (await here.refused("model-00007x")).near[0] == "a/model-00007"
        assert "a/model-09999" not in (await here.refused("model-09999x")).near


async def test_what_a_record_lists_is_all_its_backend_is_used_for():
    async with world(backend("a", "gpt-*", "o?")) as here:
        assert await here.chosen("a/gpt-5") == "a gpt-5"
        assert await here.chosen("gpt-5-mini") == "a gpt-5-mini"
        assert await here.chosen("o3") == "a o3"
        for model in ("a/claude", "o33", "a/", "a", ""):
            await here.refused(model)


async def test_a_backend_that_lists_nothing_takes_any_model_by_its_name_without_being_asked():
    async with ScriptedUpstream() as upstream, world(backend("a", url=upstream.url)) as here:
        assert await here.chosen("a/whatever/it-is") == "a whatever/it-is"
        assert not upstream.requests


async def test_a_models_own_name_may_hold_a_slash():
    async with world(backend("hub", "meta/llama", "a/x"), backend("a", "y")) as here:
        assert await here.chosen("meta/llama") == "hub meta/llama"
        assert await here.chosen("hub/meta/llama") == "hub meta/llama"
        assert await here.chosen("a/x") == "hub a/x"  # the backend a does not list it


async def test_a_disabled_backend_answers_for_nothing():
    async with world(backend("a", "m", enabled=False)) as here:
        assert "the backend a is not enabled" in str(await here.refused("a/m"))
        await here.refused("m")
        assert await here.ids() == ["rehearsal/rehearsal", "rehearsal"]


async def test_the_rehearsal_is_there_unless_a_record_has_its_name():
    async with world() as here:
        chosen = await here.backends.choose("rehearsal")
        assert isinstance(chosen.upstream, Rehearsal)
        assert await here.chosen("rehearsal/rehearsal") == "rehearsal rehearsal"
        here.set(backend("rehearsal", "m"))
        assert isinstance((await here.backends.choose("rehearsal/m")).upstream, HttpUpstream)
        await here.refused("rehearsal")
        here.set(backend("rehearsal", "m", enabled=False))
        await here.refused("rehearsal")


# --- asking


async def test_a_backend_that_lists_nothing_is_asked_once_for_all():
    scripted = ScriptedUpstream(models=("x", "y"))
    async with (
        scripted as upstream,
        world(backend("a", url=upstream.url), backend("b", "z")) as here,
    ):
        assert await here.chosen("z") == "b z"
        assert not upstream.requests
        found = await asyncio.gather(*(here.chosen("x") for _ in range(5)))
        assert found == ["a x"] * 5
        assert await here.chosen("y") == "a y"
        await here.refused("w")
        assert len(upstream.requests) == 1


async def test_a_listed_name_counts_before_one_that_a_server_claims():
    scripted = ScriptedUpstream(models=("m",))
    async with (
        scripted as upstream,
        world(backend("a", url=upstream.url), backend("b", "m")) as here,
    ):
        assert await here.chosen("m") == "b m"
        ids = await here.ids()
        assert {"a/m", "b/m", "m"} <= set(ids)
        [row] = [row for row in await here.backends.models() if row["id"] == "m"]
        assert row["owned_by"] == "b"


async def test_what_a_server_said_is_renewed_in_the_background():
    scripted = ScriptedUpstream(models=("old",))
    async with (
        scripted as upstream,
        world(backend("a", url=upstream.url)) as here,
        asyncio.timeout(SOON_SECONDS),
    ):
        assert await here.chosen("old") == "a old"
        upstream.models = ("new",)
        await here.clock.advance(LIST_SECONDS + 1)
        assert await here.chosen("old") == "a old"  # nobody waits for the new list
        await asyncio.gather(*here.backends._tasks)
        assert await here.chosen("new") == "a new"
        await here.refused("old")
        assert len(upstream.requests) == 2


async def test_a_server_that_fails_is_left_alone_for_a_while_and_keeps_what_it_said():
    async with ScriptedUpstream(models=("x",)) as upstream:
        upstream.models_reply = fails(500, "broken")
        async with world(backend("a", url=upstream.url)) as here:
            await here.refused("x")
            await here.refused("x")
            assert len(upstream.requests) == 1
            upstream.models_reply = None
            await here.clock.advance(FAILED_SECONDS + 1)
            assert await here.chosen("x") == "a x"
            assert here.backends.warnings == ()
            upstream.models_reply = fails(500, "broken")
            await here.clock.advance(LIST_SECONDS + 1)
            await here.ids()
            await asyncio.gather(*here.backends._tasks)
            assert await here.chosen("x") == "a x"
            assert "backend a did not say which models it has" in here.backends.warnings[0]


# --- listing


async def test_models_are_listed_by_backend_and_bare_where_that_is_clear():
    async with world(backend("a", "one", "both"), backend("b", "both")) as here:
        rows = await here.backends.models()
    assert [(row["id"], row["owned_by"]) for row in rows] == [
        ("rehearsal/rehearsal", "rehearsal"),
        ("a/one", "a"),
        ("a/both", "a"),
        ("b/both", "b"),
        ("rehearsal", "rehearsal"),
        ("one", "a"),
    ]
    assert all(row["object"] == "model" and isinstance(row["created"], int) for row in rows)


async def test_every_listed_id_can_be_chosen():
    async with ScriptedUpstream(models=("gpt-1", "other", "a/b", "hub/x")) as upstream:
        records = (
            backend("a", "b", url=upstream.url),
            backend("hub", url=upstream.url),
            backend("part", "gpt-*", "own", url=upstream.url),
        )
        async with world(*records) as here:
            rows = await here.backends.models()
            chosen = [(await here.backends.choose(str(row["id"]))).upstream.name for row in rows]
            assert chosen == [row["owned_by"] for row in rows]
            ids = [row["id"] for row in rows]
            assert {"hub/other", "part/gpt-1", "part/own", "other"} <= set(ids)
            assert "part/other" not in ids
            assert len(ids) == len(set(ids))


async def test_a_backend_that_is_down_adds_its_own_list_or_a_warning_and_fails_nobody():
    async with ScriptedUpstream() as upstream:
        await upstream.stop()
        records = (backend("a", "m", "n*", url=upstream.url), backend("b", url=upstream.url))
        async with world(*records) as here:
            assert await here.ids() == ["rehearsal/rehearsal", "a/m", "rehearsal", "m"]
            assert [w.partition(" did")[0] for w in here.backends.warnings] == [
                "backend a",
                "backend b",
            ]


async def test_a_garbled_list_is_a_warning():
    scripted = ScriptedUpstream(models_reply=sends("<html>", Content_Type="text/html"))
    async with scripted as upstream, world(backend("a", url=upstream.url)) as here:
        assert "rehearsal" in await here.ids()
        assert "text/html" in here.backends.warnings[0]


# --- following


async def test_a_changed_record_gets_a_new_session_and_the_old_one_ends_with_its_requests():
    gate = Gate()
    scripted = ScriptedUpstream(default=says("ok", gate=gate))
    async with scripted as upstream, world(backend("a", "m", url=upstream.url)) as here:
        old = (await here.backends.choose("m")).upstream
        again = (await here.backends.choose("a/m")).upstream
        assert old is again
        running = asyncio.create_task(old.complete(ASKED, seconds=5))
        await upstream.saw()
        here.set(backend("a", "m", url=upstream.url, headers={"X-New": "1"}))
        new = (await here.backends.choose("m")).upstream
        assert new is not old
        gate.open()
        assert await running
        await new.complete(ASKED, seconds=5)
        assert [seen.headers.get("X-New") for seen in upstream.chats] == [None, "1"]
        assert isinstance(old, HttpUpstream)
        assert not (old._client and old._client.is_open)


async def test_an_unchanged_record_keeps_its_session_whatever_else_changes():
    async with world(backend("a", "m")) as here:
        before = (await here.backends.choose("m")).upstream
        here.set(backend("a", "m"), backend("b", "n"))
        assert (await here.backends.choose("m")).upstream is before
        here.set(backend("b", "n"))
        await here.refused("m")


async def test_closing_ends_what_is_under_way():
    scripted = ScriptedUpstream(default=says("never", gate=Gate()))
    async with scripted as upstream, asyncio.timeout(SOON_SECONDS):
        here = World(backend("a", "m", url=upstream.url))
        chosen = await here.backends.choose("m")
        running = asyncio.create_task(chosen.upstream.complete(ASKED, seconds=60))
        seen = await upstream.saw()
        await here.backends.close()
        await seen.hung_up.wait()
        with pytest.raises(UpstreamFailed):
            await running
