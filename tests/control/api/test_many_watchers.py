"""Many watchers of one registry: an event is encoded once, and a token looked at once for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest

from bascule.auth.identity import Principal
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.tokens import Tokens
from bascule.control.api.rest import registry_routes
from bascule.control.api.watch import sse_events
from bascule.control.registry.encoded_events import EncodedEvents, Form
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Bookmark, Change
from bascule.model.json import JsonObject
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY
from tests.control.api.desk import PUBLIC, Counter, Stream
from tests.control.registry.build import BY, changes, server
from tests.control.registry.memory_store import MemoryStore

WATCH = f"{PUBLIC}/watch"
WATCHERS = 5


async def written(service: RegistryService, *servers: JsonObject) -> Change:
    """Write servers as one revision; return the change as a watch has it."""
    await service.import_records([("server", one) for one in servers], "upsert", BY)
    revision = service.view.revision
    [change] = await changes(await service.watch(revision - 1), revision)
    return change


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def service(clock: FakeClock) -> AsyncGenerator[RegistryService, None]:
    async with open_registry(MemoryStore(clock=clock), clock=clock) as opened:
        yield opened


SECRET = server("a", stdio={"command": "x", "env": {"TOKEN": "s3cret"}})


@pytest.mark.requirement("registry:watch:encoded-once")
@pytest.mark.parametrize("servers", [1, 300])
async def test_an_event_is_encoded_once_for_all_who_read_it_alike(
    service: RegistryService, servers: int
):
    change = await written(service, *(server(f"s{number}") for number in range(servers)))
    texts, form = EncodedEvents(sse_events), Form(service.view.store_id, records=True)
    found = await asyncio.gather(*(texts.of(change, form) for _ in range(WATCHERS)))
    assert all(text is found[0] for text in found)
    [text] = found[0]
    assert text.count(b'"server_id"') == servers


async def test_those_who_read_it_otherwise_get_their_own(service: RegistryService):
    change = await written(service, SECRET)
    store_id = service.view.store_id
    forms = [
        Form(store_id),
        Form(store_id, kinds=frozenset({"server"})),
        Form(store_id, records=True),
        Form(store_id, records=True, literals=True),
        Form("another"),
    ]
    texts = EncodedEvents(sse_events)
    found = [await texts.of(change, form) for form in forms]
    assert [b"s3cret" in text for [text] in found] == [False, False, False, True, False]
    assert [b"***" in text for [text] in found] == [False, False, True, False, False]
    again = [await texts.of(change, form) for form in forms]
    assert all(one is other for one, other in zip(found, again, strict=True))
    [bookmark] = await texts.of(Bookmark(change.revision, change.mark), forms[0])
    assert b"event: bookmark" in bookmark
    assert (bookmark,) != found[0]


async def test_what_is_kept_has_a_limit_and_the_newest_stays(service: RegistryService):
    first, second = [await written(service, server(name)) for name in ("a", "b")]
    texts, form = EncodedEvents(sse_events, most_bytes=1), Form(service.view.store_id)
    old = await texts.of(first, form)
    new = await texts.of(second, form)
    assert await texts.of(second, form) is new
    again = await texts.of(first, form)
    assert again == old
    assert again is not old


class CountedTokens(Tokens):
    """Tokens that note how often each was looked at, and how often whether any has changed."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(MemoryTokenStore(), KEY, clock)
        self.looks: list[str] = []
        self.states = 0

    async def still(self, token: str) -> Principal | None:
        self.looks.append(token)
        return await super().still(token)

    def state(self) -> object:
        self.states += 1
        return super().state()

    def forget(self) -> None:
        self.looks.clear()
        self.states = 0


class Crowd:
    """Watchers of one registry, each with a token."""

    def __init__(self, service: RegistryService, clock: FakeClock, opened: AsyncExitStack) -> None:
        self.service = service
        self.clock = clock
        self.tokens = CountedTokens(clock)
        self._counter = Counter(registry_routes(service, clock=clock), self.tokens)
        self._opened = opened
        self.streams: list[Stream] = []

    async def ready(self) -> Crowd:
        await self._counter.ready()
        return self

    async def join(self, token: str) -> Stream:
        headers = {"Authorization": f"Bearer {token}"}
        opening = self._counter.stream(f"{WATCH}?since=0", headers=headers)
        self.streams.append(await self._opened.enter_async_context(opening))
        return self.streams[-1]

    async def hear(self, name: str) -> list[str]:
        """Write a server; return what each watcher is told then."""
        self.tokens.forget()
        await self.service.put("server", name, server(name), BY)
        return [await told(stream) for stream in self.streams]


async def told(stream: Stream) -> str:
    """Return what a watcher hears next, but for bookmarks: a key, or the code of an error."""
    while (event := await stream.next()).event == "bookmark":
        pass
    content = json.loads(event.data)
    return content["error"]["code"] if "error" in content else content["upserts"][0]


@pytest.fixture
async def crowd(service: RegistryService, clock: FakeClock) -> AsyncGenerator[Crowd, None]:
    async with AsyncExitStack() as opened:
        yield await Crowd(service, clock, opened).ready()


@pytest.mark.requirement("registry:watch:tokens-together")
async def test_tokens_are_not_looked_at_again_while_none_has_changed(crowd: Crowd):
    minted = [await crowd.tokens.mint(str(number), "node") for number in range(WATCHERS)]
    for one in minted:
        await crowd.join(one.token)
        await crowd.join(one.token)
    await crowd.hear("opened")
    assert await crowd.hear("a") == ["a"] * 2 * WATCHERS
    assert (crowd.tokens.looks, crowd.tokens.states) == ([], 1)
    await crowd.clock.advance(2)
    await crowd.hear("b")
    every = sorted(one.token for one in minted)
    assert sorted(crowd.tokens.looks) == every, "now and then, since tokens also expire"
    await crowd.tokens.mint("another", "node")
    await crowd.hear("c")
    assert sorted(crowd.tokens.looks) == every, "any change of tokens may be one of these"


@pytest.mark.requirement("registry:watch:tokens-together")
async def test_a_revoked_token_ends_its_own_watches_and_no_others(crowd: Crowd):
    minted = [await crowd.tokens.mint(name, "node") for name in ("stays", "goes")]
    for one in minted:
        await crowd.join(one.token)
        await crowd.join(one.token)
    await crowd.hear("a")
    await crowd.tokens.revoke(minted[1].record.id)
    assert await crowd.hear("b") == ["b", "b", "unauthenticated", "unauthenticated"]


async def test_a_token_that_expires_ends_its_watch(crowd: Crowd):
    minted = await crowd.tokens.mint("short", "node", ttl_seconds=60)
    await crowd.join(minted.token)
    await crowd.hear("a")
    await crowd.clock.advance(61)
    assert await crowd.hear("b") == ["unauthenticated"]
