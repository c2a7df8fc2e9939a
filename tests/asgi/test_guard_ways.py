"""The guard's short way and its long one: both decide the same, on any headers, in any order."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from bascule.asgi.guard import BodyRule, GuardedApp, GuardRules, direct_route
from bascule.asgi.json import read_body, send_json
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.token_record import TokenRecord
from bascule.auth.tokens import Tokens
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY, Answer, http_scope
from tests.asgi.plain_guard import No, PlainGuard

Pairs = list[tuple[bytes, bytes]]
VERBS, BODY = ("GET", "POST"), BodyRule(max_bytes=50)
RULES, ORIGINS = GuardRules(), ("https://ours.example",)
USUAL: dict[bytes, bytes] = {
    b"host": b"127.0.0.1:7070",
    b"authorization": b"Bearer {mine}",
    b"content-type": b"application/json",
    b"content-length": b"2",
    b"accept": b"*/*",
}
VALUES: dict[bytes, tuple[bytes, ...]] = {
    b"host": (b"127.0.0.1:7070", b"LOCALHOST", b"[::1]:1", b"evil.example", b"", b"localhost:x"),
    b"authorization": (
        *(b"Bearer {mine}", b"bearer {mine}", b"Bearer  {mine}", b"Bearer {mine} ", b"Bearer"),
        *(b"Bearer {other}", b"Bearer {short}", b"Bearer bsc_x", b"Basic eA==", b"", b"\xff"),
    ),
    b"origin": (b"http://127.0.0.1:7070", b"https://ours.example", b"null", b"http://["),
    b"sec-fetch-site": (b"same-origin", b"none", b"NONE", b"cross-site", b"same-site"),
    b"sec-fetch-mode": (b"navigate", b"cors"),
    b"content-type": (
        *(b"application/json", b"Application/JSON; charset=utf-8", b"text/plain", b""),
    ),
    b"content-length": (
        *(b"0", b"2", b"50", b"51", b"0000000002", b"9" * 30, b"-1", b"+2", b"x", b""),
    ),
    b"content-encoding": (b"identity", b"IDENTITY", b"gzip"),
    b"transfer-encoding": (b"chunked",),
    b"x-other": (b"1",),
}


@st.composite
def heads(draw: st.DrawFn) -> Pairs:
    """Usual headers, with a few of them missing, changed, doubled, recased, or in another order."""
    pairs = list(USUAL.items())
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(list(VALUES)))
        value = draw(st.sampled_from(VALUES[name]))
        what = draw(st.sampled_from(["change", "change", "add", "drop", "recase"]))
        if what != "add":
            pairs = [pair for pair in pairs if pair[0] != name]
        if what != "drop":
            pairs.append((name.title() if what == "recase" else name, value))
    return draw(st.permutations(pairs))


REQUESTS = st.tuples(st.sampled_from(["POST", "POST", "GET", "HEAD", "PUT"]), heads())
HAPPENINGS = st.sampled_from(["revoke", "mint", "later"])


async def hot(scope: Scope, receive: Receive, send: Send) -> None:
    await send_json(scope, send, {"got": len(await read_body(receive))})


class CountedStore(MemoryTokenStore):
    """Counts how often it is asked."""

    asked = 0

    async def by_digest(self, *digests: bytes) -> TokenRecord | None:
        self.asked += 1
        return await super().by_digest(*digests)


class Site:
    """The guard, and the plain one beside it, which remembers nothing."""

    def __init__(self) -> None:
        self.clock, self.store = FakeClock(), CountedStore()
        self.tokens = self.fresh()
        path = direct_route("/hot", hot, VERBS, permission="tools:use", body=BODY)
        self.app = GuardedApp([path.shared_with(ORIGINS)], self.tokens, RULES)
        self.names: dict[bytes, bytes] = {}
        self.ids: list[str] = []

    def fresh(self) -> Tokens:
        return Tokens(self.store, KEY, self.clock)

    async def begin(self) -> None:
        mine = await self.tokens.mint("mine", "client", task_id="t")
        other = await self.tokens.mint("other", "viewer")
        short = await self.tokens.mint("short", "client", task_id="t", ttl_seconds=60)
        self.ids = [mine.record.id, other.record.id, short.record.id]
        named = {b"{mine}": mine, b"{other}": other, b"{short}": short}
        self.names = {name: minted.token.encode() for name, minted in named.items()}

    async def happen(self, what: str) -> None:
        if what == "revoke" and self.ids:
            await self.tokens.revoke(self.ids.pop())
        elif what == "mint":
            await self.tokens.mint("new", "viewer")
        else:
            self.clock.jump(40)

    async def compare(self, method: str, pairs: Pairs) -> None:
        scope = self.request(method, pairs)
        guard = PlainGuard(self.fresh(), RULES, VERBS, "tools:use", BODY, ORIGINS)
        expected = await guard.judge(dict(scope))
        assert said(await asked(self.app, scope)) == told(expected)

    def request(self, method: str, pairs: Pairs) -> dict[str, Any]:
        filled = [(name, self._filled(value)) for name, value in pairs]
        return {**http_scope(method, "/hot", []), "headers": filled}

    def _filled(self, value: bytes) -> bytes:
        for name, token in self.names.items():
            value = value.replace(name, token)
        return value


def told(refusal: No | None) -> object:
    if refusal is None:
        return 200
    words = {"code": refusal.code, "message": refusal.message, "details": refusal.details}
    return refusal.status, words, refusal.challenge


def said(answer: Answer) -> object:
    if answer.status == 200:
        return 200
    return answer.status, answer.json["error"], answer.header("www-authenticate")


async def asked(app: GuardedApp, scope: dict[str, Any]) -> Answer:
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(k.decode(), v.decode("latin-1")) for k, v in message["headers"]]
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


def usual(**changed: bytes) -> tuple[str, Pairs]:
    """Return a usual request with some headers of other values, or without them."""
    pairs = {**USUAL, **{name.replace("_", "-").encode(): v for name, v in changed.items()}}
    return "POST", [(name, value) for name, value in pairs.items() if value != b"-"]


SHORT = usual(authorization=b"Bearer {short}")


@example([SHORT, "later", SHORT, "later", SHORT])
@example([usual(content_length=b"50"), usual(content_length=b"51")])
@example([usual(content_length=b"-", content_type=b"text/plain", transfer_encoding=b"chunked")])
@settings(max_examples=200)
@given(st.lists(REQUESTS | HAPPENINGS, min_size=1, max_size=12))
def test_the_guard_decides_as_if_it_made_every_check(steps: list[tuple[str, Pairs] | str]):
    async def run() -> None:
        site = Site()
        await site.begin()
        await site.compare("POST", list(USUAL.items()))
        for step in steps:
            if isinstance(step, str):
                await site.happen(step)
            else:
                await site.compare(*step)
            await site.compare("POST", list(USUAL.items()))

    asyncio.run(run())


async def test_a_usual_request_is_recognised_without_asking_the_store():
    site = Site()
    await site.begin()
    await site.compare("POST", list(USUAL.items()))
    before = site.store.asked
    assert (await asked(site.app, site.request("POST", list(USUAL.items())))).status == 200
    assert site.store.asked == before
