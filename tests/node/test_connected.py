"""``Bridge.connect`` with a client's token: the same bridge, elsewhere.

What does not depend on where the bridge is runs twice: over one in this process, and connected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from bascule import BlockingBridge, Bridge, ConnectedBridge, SessionLimits, SessionRefused
from bascule.asgi.serve import Serving
from bascule.client.http import ApiError, Unreachable
from bascule.errors import RemoteError, ServerUnavailable
from bascule.model.call import CallLimits, Progress
from bascule.model.status import Change
from bascule.model.task import TaskBudgets, TaskPolicy
from bascule.node.connected_bridge import ConnectedSession
from bascule.node.contract import ToolSession
from bascule.node.ports import InputHandler
from tests.client.peers import hangs_up, is_silent, nobody, peer
from tests.doors.door import TASKS, Door
from tests.loop.guest import said
from tests.node.fakes import Doorman, FakeCaller, Sent, failed, succeeded, text
from tests.node.fakes import cut as was_cut
from tests.waits import SOON_SECONDS

READ, WRITE, DELETE = "mcp__fs__read", "mcp__fs__write", "mcp__fs__delete"


class Opens(Protocol):
    """Opens a session of a task, wherever its bridge is."""

    def __call__(self, task: str = "writer", **options: Any) -> ToolSession: ...


class Scene:
    """A door that is served, and bridges over it."""

    def __init__(self) -> None:
        self.door = Door()
        self.caller: FakeCaller = self.door.world.caller
        self.tokens: dict[str, str] = {}
        self._server = Serving(self.door.app)
        self._serving = AsyncExitStack()
        self._open: list[ConnectedBridge] = []

    async def serve(self) -> None:
        await self._serving.enter_async_context(self._server)
        self.tokens = {task: await self.door.minted(task) for task in TASKS}

    @property
    def url(self) -> str:
        return self._server.url

    def connect(self, task: str = "writer") -> ConnectedBridge:
        bridge = Bridge.connect(self.url, token=self.tokens[task])
        self._open.append(bridge)
        return bridge

    async def end_server(self) -> int:
        """End the server; return the port that another may have now."""
        await self._serving.aclose()
        return self._server.port

    async def close(self) -> None:
        for bridge in self._open:
            await bridge.close()
        await self.end_server()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    await scene.close()


@pytest.fixture
async def served(scene: Scene) -> Scene:
    await scene.serve()
    return scene


@pytest.fixture(params=["in process", "connected"])
async def opens(request: pytest.FixtureRequest, scene: Scene) -> Opens:
    def here(task: str = "writer", **options: Any) -> ToolSession:
        return scene.door.world.core.session(task=task, **options)

    def elsewhere(task: str = "writer", **options: Any) -> ToolSession:
        return scene.connect(task).session(**options)

    if request.param == "in process":
        return here
    await scene.serve()
    return elsewhere


# --- the same, wherever the bridge is


async def test_a_session_tells_how_its_own_servers_stand(scene: Scene, opens: Opens):
    session = opens()
    await session.tools()
    assert {status.server_id: status.state for status in session.statuses()} == {"fs": "connected"}


async def test_a_session_gets_its_own_servers_back_and_no_others(scene: Scene, opens: Opens):
    session = opens()
    await session.reconnect("fs")
    with pytest.raises(ServerUnavailable):
        await session.reconnect("somebody else's")


async def test_a_session_tells_of_tools_that_changed(scene: Scene, opens: Opens):
    session, told = opens(), asyncio.Queue[Change]()
    leave = session.subscribe(told.put_nowait)
    await session.tools()
    scene.caller.offers(scene.door.world.core.snapshot.servers["fs"], "read")
    scene.door.world.core.changes.announce(Change(kind="tools", server_id="fs"))
    await session.tools()
    assert (await told.get()).server_id == "fs"
    leave()
    scene.door.world.core.changes.announce(Change(kind="tools", server_id="fs"))
    await session.tools()
    assert told.empty()


@pytest.mark.requirement("hostcalls:own-tools:audit")
async def test_a_call_of_an_own_tool_stands_in_the_ledger_of_the_bridge(scene: Scene, opens: Opens):
    outcome = await opens().note_own("count", {"text": "abc"}, said("four"), 0.25)
    event = scene.door.world.ledger.last
    assert (event.server_id, event.tool_name, event.reason) == ("", "count", "own_tool")
    assert (event.task_id, event.duration_ms, event.output_bytes) == ("writer", 250.0, 4)
    assert event.arguments == {"text": "string(3)"}
    assert (outcome.request_id, outcome.text) == (event.request_id, "four")


async def test_a_session_says_what_its_task_leaves_to_a_conversation(scene: Scene, opens: Opens):
    assert await opens().budgets() == TaskBudgets()
    writer = {**TASKS["writer"], "max_iterations": 2, "tool_output": "always_json"}
    scene.door.world.apply(tasks={"writer": writer})
    assert await opens().budgets() == TaskBudgets(max_iterations=2, tool_output="always_json")
    assert scene.caller.listed == []


async def test_limits_are_a_value_or_keywords_which_count_first(scene: Scene, opens: Opens):
    scene.caller.answers("read", text("x" * 1000))
    wide = CallLimits(max_output_bytes=900)
    by_value = await opens().call(READ, limits=wide)
    by_keyword = await opens().call(READ, limits=wide, max_output_bytes=40)
    assert [cut.truncated and cut.truncated.shown <= 40 for cut in (by_value, by_keyword)] == [
        False,
        True,
    ]


@pytest.mark.requirement("budgets:request-output")
async def test_a_session_lowers_what_a_tool_may_say(scene: Scene, opens: Opens):
    scene.caller.answers("read", text("x" * 1000))
    outcome = await opens(max_tool_output_bytes=40).call(READ)
    assert outcome.truncated is not None
    assert outcome.truncated.shown <= 40
    assert outcome.truncated is not None
    assert outcome.truncated.shown <= 40


@pytest.mark.requirement("bridge:connect")
async def test_the_tools_are_those_of_the_task(scene: Scene, opens: Opens):
    tools = await opens().tools()
    assert tools.names == (DELETE, READ, WRITE)
    assert (tools.revision, tools.warnings) == (1, ())
    here = await scene.door.world.core.session(task="writer").tools()
    assert list(tools) == list(here)
    assert tools.openai() == here.openai()
    assert (await opens("reader").tools()).names == (READ,)


async def test_a_server_that_cannot_list_is_a_warning(scene: Scene, opens: Opens):
    scene.caller.fails("fs", ServerUnavailable("it is down"))
    tools = await opens().tools()
    assert (tuple(tools), len(tools.warnings)) == ((), 1)
    assert "it is down" in tools.warnings[0]


@pytest.mark.requirement("bridge:connect")
async def test_a_call_gives_the_whole_outcome(scene: Scene, opens: Opens):
    scene.caller.answers("read", text("hello\u202e", structuredContent={"n": [1, None]}))
    outcome = succeeded(await opens().call(READ, {"text": "x"}))
    assert outcome.structured == outcome.unwrap() == {"n": [1, None]}
    assert outcome.content == ({"type": "text", "text": outcome.text},)
    assert (outcome.truncated, outcome.revision) == (None, 1)
    assert len(outcome.warnings) == 1
    assert outcome.request_id
    assert [sent.payload for sent in scene.door.world.sent] == [b'{"text":"x"}']


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        (WRITE, {"count": "many"}, "mcp_invalid_arguments"),
        (WRITE, {"text": float("nan")}, "mcp_invalid_arguments"),
        (WRITE, {"text": {1, 2}}, "mcp_invalid_arguments"),
        (WRITE, ["text"], "mcp_invalid_arguments"),
        (DELETE, None, "mcp_approval_required"),
        ("mcp__fs__missing", None, "mcp_invalid_arguments"),
        ("nowhere/read", None, "mcp_invalid_arguments"),
    ],
)
async def test_a_refused_call_is_an_outcome_and_sends_nothing(
    scene: Scene, opens: Opens, name: str, arguments: Any, code: str
):
    failed(await opens().call(name, arguments), code)
    assert scene.door.world.sent == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (RemoteError(-32000, "no such file"), "mcp_tool_error"),
        (ServerUnavailable("it is down"), "mcp_unavailable"),
        (text("it broke", isError=True), "mcp_tool_error"),
    ],
)
async def test_a_failed_call_is_an_outcome(scene: Scene, opens: Opens, answer: Any, code: str):
    scene.caller.answers("read", answer)
    outcome = failed(await opens().call(READ), code)
    assert outcome.error.message


async def test_limits_of_one_call_reach_it(scene: Scene, opens: Opens):
    doorman = Doorman()
    scene.caller.answers("write", doorman)
    session = opens()
    await session.call(READ, timeout=1.5)
    [sent] = scene.door.world.sent
    assert 0 < sent.timeout <= 1.5
    waits = failed(await session.call(WRITE, idle_timeout=0.01), "mcp_timeout")
    assert "progress" in waits.error.message
    assert doorman.inside == 0


async def test_progress_is_told_in_order(scene: Scene, opens: Opens):
    async def works(sent: Sent) -> Any:
        assert sent.on_progress is not None
        for step in (1, 2, 3):
            sent.on_progress(Progress(step, 3, f"step {step}"))
        return text("done")

    scene.caller.answers("read", works)
    heard: list[Progress] = []
    outcome = await opens().call(READ, on_progress=heard.append)
    assert succeeded(outcome).text == "done"
    assert heard == [Progress(step, 3, f"step {step}") for step in (1, 2, 3)]
    failed(await opens().call("fs/missing", on_progress=heard.append), "mcp_invalid_arguments")


@pytest.mark.parametrize("listens", [False, True])
async def test_a_caller_who_leaves_ends_the_call(scene: Scene, opens: Opens, listens: bool):
    doorman, heard = Doorman(), list[Progress]()
    scene.caller.answers("read", doorman)
    on_progress = heard.append if listens else None
    async with asyncio.timeout(SOON_SECONDS):
        calling = asyncio.create_task(opens().call(READ, on_progress=on_progress))
        await doorman.next()
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        while doorman.inside:
            await scene.door.clock.settle()


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"server_ids": ["fs"]}, (DELETE, READ, WRITE)),
        ({"server_ids": []}, ()),
        ({"tool_allowlist": ["read", "fs/wr*"]}, (READ, WRITE)),
        ({"tool_allowlist": []}, ()),
        ({"tool_denylist": ["delete", "a, b"]}, (READ, WRITE)),
        ({"read_only": True}, (READ,)),
    ],
)
async def test_a_session_narrows(
    scene: Scene, opens: Opens, options: dict[str, Any], left: tuple[str, ...]
):
    session = opens(**options)
    assert (await session.tools()).names == left
    outcome = await session.call(WRITE)
    assert outcome.ok == (WRITE in left)
    assert session.explain(WRITE).allowed == (WRITE in left)


async def test_what_is_explained_names_layer_and_reason(opens: Opens):
    session = opens("reader")
    await session.tools()
    for name in (WRITE, "fs/write", "mcp.fs.write"):
        why = session.explain(name)
        assert (why.server, why.tool, why.allowed) == ("fs", "write", False)
        assert (why.decision.layer, why.decision.reason) == ("task", "task_not_allowlisted")
    assert session.explain("fs").allowed
    assert session.explain(READ).notes == ("read tool; no approval needed (platform is 'never')",)
    missing = session.explain("mcp__fs__read2")
    assert (missing.server, missing.allowed, missing.revision) == ("fs", False, 1)


async def test_a_sessions_own_budget_is_kept(scene: Scene, opens: Opens):
    session = opens(limits=SessionLimits(max_total_tool_calls=2))
    failed(await session.call("fs/missing"), "mcp_invalid_arguments")
    succeeded(await session.call(READ))
    succeeded(await session.call(READ))
    failed(await session.call(READ), "mcp_budget_exceeded")
    assert len(scene.door.world.sent) == 2


async def test_a_closed_session_calls_nothing(scene: Scene, opens: Opens):
    session = opens()
    await session.call(READ)
    await session.close()
    failed(await session.call(READ), "mcp_unavailable")
    assert len(scene.door.world.sent) == 1


@pytest.mark.requirement("policy:connected-registry-rules")
async def test_a_session_follows_the_registry(scene: Scene, opens: Opens):
    session = opens()
    assert succeeded(await session.call(WRITE)).revision == 1
    scene.door.world.apply(tasks={**TASKS, "writer": TASKS["reader"]})
    assert failed(await session.call(WRITE), "mcp_policy_denied").revision == 2
    tools = await session.tools()
    assert (tools.names, tools.revision) == ((READ,), 2)
    assert session.explain(WRITE).revision == 2


# --- what differs


def entered(session: ConnectedSession) -> Any:
    async def enter() -> None:
        async with session:
            pass

    return enter()


FIRST: dict[str, Callable[[ConnectedSession], Any]] = {
    "list": lambda session: session.tools(),
    "call": lambda session: session.call(READ),
    "call with progress": lambda session: session.call(READ, on_progress=print),
    "explanation": lambda session: session.explanation(READ),
    "output": lambda session: session.output("x"),
    "enter": entered,
}


@pytest.mark.requirement("bridge:connect", "policy:connected-registry-rules")
@pytest.mark.parametrize("first", FIRST)
async def test_a_session_that_asks_too_much_is_refused_by_what_is_awaited_first(
    served: Scene, first: str
):
    session = served.connect("bound").session(server_ids=["db"])
    with pytest.raises(SessionRefused, match="'db'") as refused:
        await FIRST[first](session)
    assert (refused.value.reason, refused.value.server) == ("not_allowed", "db")
    assert served.door.world.sent == []


async def test_a_session_that_is_refused_later_is_told_as_outcomes(served: Scene):
    session = served.connect().session()
    succeeded(await session.call(READ))
    await served.door.clock.advance(1_000)
    await served.door.sessions.sweep()
    served.door.world.apply(tasks={})
    refused = failed(await session.call(READ), "mcp_policy_denied")
    assert "does not exist" in refused.error.message


@pytest.mark.requirement("policy:connected-registry-rules")
@pytest.mark.parametrize("task", ["reader", TaskPolicy(enabled=True)])
async def test_the_task_is_the_tokens_and_no_other(served: Scene, task: Any):
    bridge = served.connect("writer")
    await bridge.start()
    assert (await bridge.session(task="writer").tools()).names
    with pytest.raises(SessionRefused, match="'writer'"):
        bridge.session(task=task)


class Inputs:
    """An ``InputHandler`` that nobody can ask."""

    @property
    def capabilities(self) -> dict[str, Any]:
        return {"elicitation": {}}

    async def provide(self, method: str, params: Any) -> Any:
        raise NotImplementedError


async def test_inputs_cannot_be_asked_for_from_elsewhere(served: Scene):
    inputs: InputHandler = Inputs()
    with pytest.raises(SessionRefused, match="inputs="):
        await served.connect().session(inputs=inputs).tools()


@pytest.mark.parametrize("role", ["admin", "operator", "approver", "viewer"])
async def test_other_tokens_open_no_sessions_and_are_told_which_do(served: Scene, role: Any):
    token = await served.door.minted(role=role)
    with pytest.raises(SessionRefused, match="tokens create --role client --task T"):
        async with Bridge.connect(served.url, token=token):
            pytest.fail("it must not be entered")


async def test_a_token_that_is_not_valid_is_refused_at_the_start(served: Scene):
    with pytest.raises(ApiError) as refused:
        await Bridge.connect(served.url, token="bsc_" + "x" * 43).start()
    assert refused.value.code == "unauthenticated"


async def test_who_one_is_is_known_after_the_start(served: Scene):
    async with served.connect("reader") as bridge:
        assert bridge.identity is not None
        assert (bridge.identity.role, bridge.identity.task) == ("client", "reader")


async def test_a_token_that_was_revoked_calls_nothing_more(served: Scene):
    session = served.connect().session()
    succeeded(await session.call(READ))
    for record in await served.door.tokens.records():
        await served.door.tokens.revoke(record.id)
    failed(await session.call(READ), "mcp_policy_denied")
    with pytest.raises(ApiError):
        await session.tools()


async def test_before_anything_was_asked_an_explanation_says_so(served: Scene):
    bridge = served.connect()
    early = bridge.session()
    assert "nothing was fetched" in str(early.explain(READ))
    await bridge.start()
    session = bridge.session()
    assert "nothing was fetched" in str(session.explain(READ))
    assert (await session.explanation(READ)).allowed
    async with session:
        assert session.explain(READ).allowed
    assert session.explain("mcp__db__x").decision.reason == "unknown_tool"


async def test_a_cut_output_is_read_where_it_is_kept(served: Scene):
    served.caller.answers("read", text("x" * 100))
    session = served.connect().session(tool_denylist=["write"])
    cut = was_cut(await session.call(READ, max_output_bytes=20)).truncated
    assert cut is not None
    assert cut.handle is not None
    assert await session.output(cut.handle, 95) == "x" * 5
    with pytest.raises(RuntimeError, match=r"session\.output"):
        session.read_output(cut.handle)
    with pytest.raises(KeyError):
        await session.output("no-such-handle")


async def test_who_calls_is_the_tokens_name_whatever_the_session_says(served: Scene):
    await served.connect().session(caller="mallory").call(READ)
    assert [event.caller for event in served.door.world.ledger.opened()] == ["alice"]


async def test_after_the_bridge_is_closed_nothing_is_sent(served: Scene):
    bridge = served.connect()
    session, late = bridge.session(), bridge.session()
    succeeded(await session.call(READ))
    await bridge.close()
    await bridge.close()
    failed(await session.call(READ), "mcp_unavailable")
    failed(await late.call(READ), "mcp_unavailable")
    failed(await bridge.session().call(READ), "mcp_unavailable")
    assert len(served.door.world.sent) == 1


async def test_many_calls_at_once_each_get_their_own_answer(served: Scene):
    async def echoes(sent: Sent) -> Any:
        return text(sent.payload.decode())

    served.caller.answers("read", echoes)
    session = served.connect().session()
    calls = [session.call(READ, {"text": str(number)}) for number in range(200)]
    outcomes = await asyncio.gather(*calls)
    assert [outcome.text for outcome in outcomes] == [f'{{"text":"{n}"}}' for n in range(200)]


# --- a server that is not what it should be


async def test_where_nobody_listens_a_start_fails_and_a_call_was_not_delivered():
    bridge = Bridge.connect(nobody(), token="t")
    with pytest.raises(Unreachable):
        await bridge.start()
    failed(await bridge.session().call(READ), "mcp_unavailable")
    await bridge.close()


async def test_a_server_that_is_gone_was_not_delivered_to(served: Scene):
    session = served.connect().session()
    succeeded(await session.call(READ))
    await served.end_server()
    gone = failed(await session.call(READ), "mcp_unavailable")
    assert (gone.error.retryable, gone.revision) == (True, 1)
    tools = await session.tools()
    assert (len(tools), len(tools.warnings)) == (0, 1)


@pytest.mark.requirement("bridge:connect")
@pytest.mark.parametrize("listens", [False, True])
async def test_a_call_whose_answer_is_lost_is_unknown_and_sent_once(served: Scene, listens: bool):
    session = served.connect().session()
    succeeded(await session.call(READ))
    async with peer(hangs_up, await served.end_server()) as other:
        on_progress = print if listens else None
        lost = failed(await session.call(WRITE, on_progress=on_progress), "mcp_outcome_unknown")
        assert not lost.error.retryable
        assert len(other.heads) == 1


@pytest.mark.parametrize("listens", [False, True])
async def test_a_call_that_is_not_answered_in_time_times_out(served: Scene, listens: bool):
    session = served.connect().session()
    succeeded(await session.call(READ))
    async with peer(is_silent, await served.end_server()) as other:
        on_progress = print if listens else None
        failed(await session.call(WRITE, timeout=0.05, on_progress=on_progress), "mcp_timeout")
        assert len(other.heads) == 1


async def test_a_server_that_comes_back_is_used_again(served: Scene):
    session = served.connect().session()
    port = await served.end_server()
    failed(await session.call(READ), "mcp_unavailable")
    async with Serving(served.door.app, port=port):
        succeeded(await session.call(READ))


# --- without async


@pytest.fixture
async def blocking(served: Scene) -> AsyncIterator[BlockingBridge]:
    async with AsyncExitStack() as stack:
        bridge = Bridge.connect_blocking(served.url, token=served.tokens["bound"])
        stack.push_async_callback(asyncio.to_thread, bridge.close)
        yield bridge


@pytest.mark.requirement("bridge:connect")
async def test_a_program_without_async_connects_too(served: Scene, blocking: BlockingBridge):
    served.caller.answers("read", text("x" * 100))

    def program() -> None:
        with blocking.session(tool_denylist=["write"]) as session:
            assert session.tools().names == (DELETE, READ)
            assert not session.explain(WRITE).allowed
            cut = session.call(READ, max_output_bytes=20).truncated
            assert cut is not None
            assert cut.handle is not None
            assert session.read_output(cut.handle, 95) == "x" * 5

    await asyncio.to_thread(program)


async def test_a_refused_session_is_refused_when_it_is_opened(blocking: BlockingBridge):
    def program() -> None:
        with pytest.raises(SessionRefused, match="'db'"):
            blocking.session(server_ids=["db"])

    await asyncio.to_thread(program)


async def test_an_own_tool_that_the_server_does_not_hear_of_is_a_warning(served: Scene):
    session = served.connect().session()
    await session.start()
    await served.end_server()
    outcome = await session.note_own("count", {}, said("four"), 0.0)
    assert outcome.text == "four"
    assert [warning.partition(":")[0] for warning in outcome.warnings] == [
        "the call of an own tool was not written down"
    ]


async def test_an_own_tool_of_a_session_that_never_opened_is_a_warning():
    bridge = Bridge.connect(nobody(), token="bsc_token")
    outcome = await bridge.session().note_own("count", {}, said("four"), 0.0)
    await bridge.close()
    assert (outcome.ok, len(outcome.warnings)) == (True, 1)
