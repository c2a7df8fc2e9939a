"""A parked turn and the end of its process, wherever that comes, for OpenAI's client for Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI

from bascule.auth.tokens import Tokens
from bascule.loop.backend import UpstreamFailed
from tests.asgi.caller import make_tokens
from tests.doors.chat.lasting import kept_in
from tests.doors.chat.site import READ, WRITE, Site, serving
from tests.doors.chat.test_approvals import HELLO, ask
from tests.loop.fakes import Hang, asks, call, says
from tests.loop.parked import AT_ONCE, Desk, asking_server
from tests.node.fakes import Sent, text
from tests.policy.build import server
from tests.waits import SOON_SECONDS

Json = dict[str, Any]
pytestmark = pytest.mark.requirement("chat:approval:restart", "chat:approval:once")


class Life:
    """One life of a process that serves."""

    def __init__(self, site: Site, desk: Desk, token: str) -> None:
        self.site, self.desk, self.token = site, desk, token

    async def ask(self, resume: str | None = None, *, stream: bool) -> Json:
        more = {} if resume is None else {"extra_body": {"mcp": {"resume": resume}}}
        async with AsyncOpenAI(
            base_url=f"{self.site.url}/v1", api_key=self.token, max_retries=0, timeout=SOON_SECONDS
        ) as client:
            return await ask(client, stream=stream, messages=HELLO, **more)


class Lives:
    """The lives of one data directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._tokens: Tokens = make_tokens()
        self._token = ""

    @asynccontextmanager
    async def next(self) -> AsyncGenerator[Life, None]:
        async with kept_in(self._data) as (desk, turns):
            site = Site(
                settings=AT_ONCE,
                records=(asking_server(), server("git")),
                approvals=desk.approvals,
                parked=turns,
                tokens=self._tokens,
            )
            async with serving(site):
                self._token = self._token or await site.token()
                yield Life(site, desk, self._token)


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


async def parked_in(lives: Lives, *, stream: bool) -> str:
    """Park a turn in a first life, with one result of its own."""
    async with lives.next() as life:
        life.site.world.caller.answers("read", text("the file"))
        life.site.script(asks(call(READ, None, "c1"), call(WRITE, None, "c2")))
        answer = await life.ask(stream=stream)
        await life.desk.decide("approve")
        assert [sent.tool for sent in life.site.world.sent] == ["read"]
    return answer["bascule"]["paused"]["resume"]


async def end_of(life: Life, resume: str, *, stream: bool, said: str) -> list[Json]:
    """Resume to the end; return what the model read of the tools."""
    upstream = life.site.script(says(said))
    answer = await life.ask(resume, stream=stream)
    assert (answer["text"], answer["bascule"]["paused"]) == (said, None)
    return [m for m in upstream.asked[-1]["messages"] if m["role"] == "tool"]


async def test_it_ends_before_anybody_resumes(lives: Lives, stream: bool):
    resume = await parked_in(lives, stream=stream)
    async with lives.next() as life:
        life.site.world.caller.answers("write", text("written"))
        read = await end_of(life, resume, stream=stream, said="Done.")
        assert [m["content"] for m in read] == ["the file", "written"]
        assert [sent.tool for sent in life.site.world.sent] == ["write"]


async def test_it_ends_while_the_approved_call_is_on_its_way(lives: Lives, stream: bool):
    resume = await parked_in(lives, stream=stream)
    async with lives.next() as life:
        left = asyncio.Event()

        async def hang(_: Sent) -> Json:
            left.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody lets it end")

        life.site.world.caller.answers("write", hang)
        asking = asyncio.create_task(life.ask(resume, stream=stream))
        async with asyncio.timeout(SOON_SECONDS):
            await left.wait()
    with pytest.raises(APIError):
        await asking
    async with lives.next() as life:
        read = await end_of(life, resume, stream=stream, said="Who knows.")
        assert read[0]["content"] == "the file"
        assert "mcp_outcome_unknown" in read[1]["content"]
        assert not life.site.world.sent


async def test_it_ends_while_the_model_is_asked(lives: Lives, stream: bool):
    resume = await parked_in(lives, stream=stream)
    async with lives.next() as life:
        life.site.world.caller.answers("write", text("written"))
        hang = Hang()
        life.site.script(hang)
        asking = asyncio.create_task(life.ask(resume, stream=stream))
        async with asyncio.timeout(SOON_SECONDS):
            await hang.reached.wait()
    with pytest.raises(APIError):
        await asking
    async with lives.next() as life:
        read = await end_of(life, resume, stream=stream, said="Done.")
        assert [m["content"] for m in read] == ["the file", "written"]
        assert not life.site.world.sent


async def test_a_model_that_refuses_is_asked_again_in_another_life(lives: Lives, stream: bool):
    resume = await parked_in(lives, stream=stream)
    async with lives.next() as life:
        life.site.script(UpstreamFailed("no", status=400))
        with pytest.raises(APIError):
            await life.ask(resume, stream=stream)
        assert len(life.site.world.sent) == 1
    async with lives.next() as life:
        read = await end_of(life, resume, stream=stream, said="Done.")
        assert [m["content"] for m in read] == ["the file", "done"]
        assert not life.site.world.sent
