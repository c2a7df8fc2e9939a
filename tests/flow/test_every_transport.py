"""The same server over every transport and generation: nobody can tell from the answers."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bascule.model.call import Progress
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.node.pool.client import connect
from bascule.node.pool.opener import Opener
from bascule.node.pool.process.warden import default_spawner
from bascule.testing import ScriptedServer, do
from bascule.testing.server import MALFORMED_TOOLS, tool
from tests.flow import matrix
from tests.flow.matrix import Place
from tests.flow.servers import (
    PATIENT,
    SHORT,
    any_fault,
    code_of,
    lines_of,
    longer_list,
    misbehave,
    works,
)
from tests.waits import SOON_SECONDS, until

place = matrix.place

MEBIBYTE = 1 << 20
ROOM = {"max_tool_output_bytes": 8 * MEBIBYTE}

#: Answers that are there, around something that nobody has to understand.
HARMLESS: dict[str, Any] = {
    "unknown block": "unknown_block",
    "unknown fields": "unknown_fields",
    "answered twice": "duplicate_reply",
    "notifications": do("flood", count=200),
    "unknown notifications": do("flood", count=200, method="vendor/tick"),
}
#: Answers that cannot be read and have an id: their own call fails at once.
UNREADABLE = [
    "cut_json", "trailing_text", "bad_utf8", "lone_surrogate", "duplicate_keys", "nan", "infinity",
    "result_and_error", "neither_result_nor_error", "result_not_an_object", "error_not_an_object",
    "no_version", "unknown_result_type", "content_not_a_list",
]  # fmt: skip
UNUSABLE = frozenset({
    "no_schema", "null_schema", "schema_of_wrong_type", "remote_ref", "schema_is_text", "no_name",
    "name_is_a_number", "not_an_object",
})  # fmt: skip


async def call(session: Session, tool: str, **arguments: Any) -> Any:
    """Call a tool; the end must come."""
    async with asyncio.timeout(10):
        return await session.call(f"mcp__bad__{tool}", arguments)


async def begun(path: Path, count: int = 1) -> None:
    """Wait until a server has written so many lines."""
    await until(lambda: len(lines_of(path)) >= count)


async def journalled(path: Path, words: str) -> None:
    """Wait until a server has been sent these words."""
    await until(lambda: any(words in line for line in lines_of(path)))


# Lists


@pytest.mark.requirement(
    "transport:streamable-http",
    "transport:legacy-sse",
    "transport:http:both-generations",
    "transport:stdio",
    "wire:generations",
    "bridge:server:http",
    "transport:protocol",
)
async def test_tools_are_listed_and_called(place: Place):
    async with place.session(any_fault()) as session:
        tools = await session.tools()
        assert tools.names == ("mcp__bad__echo", "mcp__bad__fault")
        assert tools.warnings == ()
        assert tools[0].description == "The echo tool."
        await works(session)


@pytest.mark.requirement("wire:jsonrpc")
async def test_every_message_is_json_rpc_2(place: Place, tmp_path: Path):
    journal = tmp_path / "journal"
    async with place.session(any_fault(journal=journal)) as session:
        await works(session)
    messages: list[dict[str, Any]] = [json.loads(line) for line in lines_of(journal)]
    assert {message["jsonrpc"] for message in messages} == {"2.0"}
    methods = [message["method"] for message in messages if "method" in message]
    assert {"tools/list", "tools/call"} <= set(methods)
    requests = [
        m for m in messages if "method" in m and not m["method"].startswith("notifications/")
    ]
    ids = [message["id"] for message in requests]
    assert len(set(ids)) == len(ids)


async def test_a_list_of_many_pages_is_read_to_its_end(place: Place):
    names = [f"tool_{number:02}" for number in range(25)]
    script = ScriptedServer(behaviours=dict.fromkeys(names, "echo"), page_size=4)
    async with place.session(script) as session:
        assert (await session.tools()).names == tuple(f"mcp__bad__{name}" for name in names)
        assert (await call(session, "tool_24", text="last")).text == "last"


@pytest.mark.requirement("wire:page-cap")
async def test_of_a_list_without_an_end_the_first_pages_are_kept(place: Place):
    async with place.session(any_fault(pagination="endless")) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert tools.names == ("mcp__bad__echo", "mcp__bad__fault")
        assert "more than 64 pages" in tools.warnings[0]


@pytest.mark.requirement("wire:page-cap", "catalogue:failure-alone")
async def test_a_list_in_circles_is_given_up(place: Place):
    async with place.session(any_fault(pagination="cycle")) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 0
        assert "circles" in tools.warnings[0]


@pytest.mark.requirement("catalogue:list-timeout")
async def test_a_list_that_does_not_come_ends_at_its_timeout(place: Place):
    script = any_fault(on={"tools/list": "never"})
    async with place.session(script, budgets={"list_timeout_ms": 200}) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert tools.warnings[0].startswith("bad: list_timeout: ")


async def test_a_changed_list_is_heard_of_and_read(place: Place, tmp_path: Path):
    changed = [tool("echo"), tool("fault"), tool("more")]
    journal = tmp_path / "journal"
    async with place.session(any_fault(journal=journal)) as session:
        assert len(await session.tools()) == 2
        if place.is_stateless:
            return  # nothing can be announced there; the list is read again when it is old
        if place.era == "modern":
            await journalled(journal, "subscriptions/listen")
        assert (await misbehave(session, do("change_tools", tools=changed), timeout=None)).ok
        await longer_list(session, 2)
        assert (await call(session, "more", text="new")).text == "new"


@pytest.mark.requirement("call:remote-ref")
async def test_malformed_tools_are_left_out_with_a_warning_and_the_others_work(place: Place):
    listed = [tool("echo"), *MALFORMED_TOOLS.values(), tool("fault"), tool("echo")]
    async with place.session(any_fault(tools=listed)) as session:
        tools = await session.tools()
        assert {"mcp__bad__echo", "mcp__bad__fault"} <= set(tools.names)
        assert not {f"mcp__bad__{name}" for name in UNUSABLE} & set(tools.names)
        assert any("quarantined: a second tool" in warning for warning in tools.warnings)
        await works(session)
        assert code_of(await call(session, "no_schema")) == "mcp_invalid_arguments"


@pytest.mark.requirement("wire:tool-cap", "wire:description-cap")
async def test_tools_and_descriptions_beyond_their_quota_are_cut(place: Place, tmp_path: Path):
    long = tool("echo", description="d" * 100_000)
    listed = [long, *(tool(f"tool_{number}") for number in range(600))]
    script = any_fault(tools=listed)
    if not place.is_remote:
        script = replace_era(script, place).saved_to(tmp_path / "script")
    async with place.session(script) as session:
        tools = await session.tools()
        assert len(tools) == 512
        assert "more than 512 tools" in tools.warnings[0]
        assert len(tools[0].description) < 20_000
        await works(session)


def replace_era(script: ScriptedServer, place: Place) -> ScriptedServer:
    """Return a script for this place before it goes into a file."""
    return ScriptedServer(behaviours=script.behaviours, tools=script.tools, era=place.era)


async def test_what_a_server_is_and_says_of_itself_is_known(place: Place):
    script = any_fault(name="the scripted one", instructions="Ask politely.")
    opener = Opener(default_spawner())
    async with place.serving(script) as served:
        deadline = asyncio.get_running_loop().time() + 10
        client = await connect(partial(opener.open, served), deadline=deadline)
        try:
            assert (client.peer.era, client.peer.server_info["name"]) == (
                place.era,
                "the scripted one",
            )
            assert client.peer.instructions == "Ask politely."
            assert client.announces_changes
        finally:
            await client.close()
            await opener.close()


@pytest.mark.requirement("bridge:instructions")
async def test_what_a_server_says_about_its_use_is_told_by_the_session(place: Place):
    async with place.session(any_fault(instructions="Ask politely.")) as session:
        tools = await session.tools()
        assert session.instructions() == {tools[0].server_id: "Ask politely."}


# Calls


async def test_structured_content_comes_whole(place: Place):
    value = {"a": [1, 2.5, None, {"b": "ü"}], "empty": {}}
    async with place.session(any_fault()) as session:
        outcome = await misbehave(session, do("structured", value=value), timeout=None)
        assert outcome.ok
        assert outcome.structured == value == outcome.unwrap()


@pytest.mark.requirement("outcomes:tool-error")
async def test_a_tool_that_fails_says_so_in_its_own_words(place: Place):
    async with place.session(any_fault()) as session:
        outcome = await misbehave(session, do("error", text="no such file"), timeout=None)
        assert code_of(outcome) == "mcp_tool_error"
        assert outcome.text == "no such file"
        await works(session)


@pytest.mark.requirement("outcomes:tool-error", "outcomes:invalid-arguments")
@pytest.mark.parametrize(
    ("rpc_code", "code"),
    [(-32603, "mcp_tool_error"), (-32050, "mcp_tool_error"), (-32602, "mcp_invalid_arguments")],
)
async def test_a_json_rpc_error_is_the_failure_of_its_call(place: Place, rpc_code: int, code: str):
    step = do("rpc_error", code=rpc_code, message="the cat sat on it", data={"cat": "grey"})
    async with place.session(any_fault()) as session:
        outcome = await misbehave(session, step, timeout=None)
        assert code_of(outcome) == code
        assert outcome.error is not None
        assert outcome.error.message == "the cat sat on it"
        assert outcome.error.details == {"rpc_code": rpc_code, "rpc_data": {"cat": "grey"}}
        await works(session)


@pytest.mark.parametrize("fault", HARMLESS)
async def test_an_oddity_around_an_answer_does_not_lose_it(place: Place, fault: str):
    async with place.session(any_fault()) as session:
        outcome = await misbehave(session, HARMLESS[fault], timeout=None)
        assert outcome.ok, outcome.error
        assert outcome.content[0]["text"] == "hello"
        await works(session)


@pytest.mark.requirement("call:bad-frame:own-call")
async def test_an_unreadable_answer_fails_its_own_call_and_no_other(place: Place, tmp_path: Path):
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    waits = do("ledger", path=str(seen), then=do("gate", path=str(gate)))
    async with place.session(any_fault()) as session:
        patient = asyncio.create_task(misbehave(session, waits, timeout=None))
        await begun(seen)
        for fault in UNREADABLE:
            outcome = await misbehave(session, fault, timeout=None)
            assert (fault, code_of(outcome)) == (fault, "mcp_tool_error")
        await works(session)
        assert not patient.done()
        gate.touch()
        assert (await patient).text == "hello"


@pytest.mark.requirement("call:progress:reported")
async def test_progress_is_told_in_order(place: Place):
    heard: list[Progress] = []
    async with place.session(any_fault()) as session:
        outcome = await misbehave(
            session, do("progress", count=3), timeout=None, on_progress=heard.append
        )
    assert outcome.ok
    assert heard == [Progress(1, 3), Progress(2, 3), Progress(3, 3)]


@pytest.mark.requirement("call:deadline", "outcomes:timeout", "call:progress:never-cap")
@pytest.mark.parametrize("step", ["never", "progress"])
async def test_a_deadline_ends_a_call_whatever_is_heard_meanwhile(place: Place, step: str):
    heard: list[Progress] = []
    async with place.session(any_fault()) as session:
        for patience in (SHORT, 10 * SHORT):  # a busy machine may hear nothing in the first
            outcome = await misbehave(session, step, timeout=patience, on_progress=heard.append)
            assert code_of(outcome) == "mcp_timeout"
            if heard or step == "never":
                break
        assert bool(heard) == (step == "progress")
        await works(session)


@pytest.mark.requirement("call:cancel:upstream")
@pytest.mark.parametrize("ending", ["cancelled", "timed out"])
async def test_who_gives_up_is_known_to_the_server(place: Place, ending: str, tmp_path: Path):
    seen, told, journal = tmp_path / "seen", tmp_path / "told", tmp_path / "journal"
    step = do("ledger", path=str(seen), then=do("sleep_until_cancelled", path=str(told)))
    async with place.session(any_fault(journal=journal)) as session:
        if ending == "timed out":
            for patience in (SHORT, 10 * SHORT, 20 * SHORT):  # a busy machine may not even begin
                outcome = await misbehave(session, step, timeout=patience)
                assert code_of(outcome) == "mcp_timeout"
                if seen.exists():
                    break
        else:
            caller = asyncio.create_task(misbehave(session, step, timeout=None))
            await begun(seen)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
        if place.is_stateless:  # it is told, and has no way to know of what
            await journalled(journal, "notifications/cancelled")
        else:
            await begun(told)
            assert lines_of(told) == ["cancelled"]
        await works(session)


@pytest.mark.requirement("wire:server-requests-refused")
async def test_a_request_that_was_not_offered_is_refused(place: Place):
    async with place.session(any_fault()) as session:
        if place.era == "modern" and place.is_remote:  # has no way to hear an answer, and gets none
            assert code_of(await misbehave(session, "server_request")) == "mcp_timeout"
        else:
            outcome = await misbehave(session, "server_request", timeout=None)
            assert json.loads(outcome.text)["error"]["code"] == -32601
        await works(session)


async def test_concurrent_calls_interleave_and_each_gets_its_own_answer(
    place: Place, tmp_path: Path
):
    """All of them are at the server before any is answered; the last is answered first."""
    seen, count = tmp_path / "seen", 20
    gates = [tmp_path / f"gate{number}" for number in range(count)]
    async with place.session(any_fault(), budgets={"max_concurrency": count}) as session:
        await session.tools()
        calls = [
            asyncio.create_task(
                call(
                    session,
                    "fault",
                    do=do("ledger", path=str(seen), then=do("gate", path=str(gate))),
                    text=gate.name,
                )
            )
            for gate in gates
        ]
        await begun(seen, count)
        for gate, waiting in reversed(list(zip(gates, calls, strict=True))):
            assert not waiting.done()
            gate.touch()
            assert (await waiting).text == gate.name


@pytest.mark.parametrize("size", [2 * MEBIBYTE, 3 * MEBIBYTE])
async def test_a_result_of_megabytes_is_read(place: Place, size: int):
    async with place.session(any_fault(), budgets=ROOM) as session:
        outcome = await misbehave(session, do("big", bytes=size), timeout=None)
        assert outcome.ok, outcome.error
        assert outcome.text == "x" * size
        await works(session)


@pytest.mark.requirement("budgets:server:output")
async def test_a_result_over_the_records_quota_is_cut_and_says_so(place: Place):
    async with place.session(any_fault(), budgets={"max_tool_output_bytes": 1000}) as session:
        outcome = await misbehave(session, do("big", bytes=100_000), timeout=None)
        assert outcome.truncated is not None
        assert len(outcome.text) < 2000
        await works(session)


@pytest.mark.requirement("wire:frame-cap")
async def test_a_result_beyond_all_measure_fails_its_call_and_the_next_one_works(place: Place):
    async with place.session(any_fault()) as session:
        outcome = await misbehave(session, do("huge_line", bytes=12_000_000), timeout=None)
        # Over HTTP+SSE there is no reading on after it: all that is known is that it was sent.
        lost = place.transport == "http_sse_legacy"
        assert code_of(outcome) == ("mcp_outcome_unknown" if lost else "mcp_tool_error")
        await works(session)


@pytest.mark.requirement("outcomes:unknown", "call:once:otherwise-unknown")
async def test_a_connection_that_dies_in_a_call_leaves_its_outcome_unknown(
    place: Place, tmp_path: Path
):
    executed = tmp_path / "executed"
    step = do("ledger", path=str(executed), then="die")
    async with place.session(any_fault()) as session:
        assert code_of(await misbehave(session, step, timeout=None)) == "mcp_outcome_unknown"
        await works(session)
        assert len(lines_of(executed)) == 1


@pytest.mark.requirement("call:once:resend-idempotent")
async def test_what_is_harmless_to_repeat_is_sent_again(place: Place, tmp_path: Path):
    executed = tmp_path / "executed"
    step = do(
        "ledger",
        path=str(executed),
        then=do("once", path=str(tmp_path / "once"), first="die", then="echo"),
    )
    async with place.session(any_fault(), effects={"read": ["fault"]}) as session:
        outcome = await misbehave(session, step, timeout=None)
        assert outcome.ok, outcome.error
        assert len(lines_of(executed)) == 2


@pytest.mark.requirement("pool:connect-timeout", "catalogue:failure-alone")
async def test_a_handshake_without_an_answer_ends_in_time(place: Place):
    script = any_fault(on={"server/discover": "never", "initialize": "never"})
    async with place.session(script, budgets={"connect_timeout_ms": 300}) as session:
        async with asyncio.timeout(10):
            tools = await session.tools()
        assert len(tools) == 0
        assert "no connection within 0.3 s" in tools.warnings[0]
        assert code_of(await call(session, "echo")) == "mcp_unavailable"


async def test_closing_the_bridge_ends_calls_in_flight(place: Place, tmp_path: Path):
    seen = tmp_path / "seen"
    step = do("ledger", path=str(seen), then="never")
    async with place.serving(any_fault()) as served:
        bridge = Bridge.open([served], settings=PATIENT)
        async with bridge, bridge.session(server_ids=["bad"]) as session:
            waiting = asyncio.create_task(misbehave(session, step, timeout=None))
            await begun(seen)
            async with asyncio.timeout(SOON_SECONDS):
                await bridge.close()
            assert code_of(await waiting) == "mcp_outcome_unknown"
        assert len(lines_of(seen)) == 1


async def test_a_short_deadline_is_kept_beside_a_long_one(place: Place, tmp_path: Path):
    gate = tmp_path / "gate"
    async with place.session(any_fault()) as session:
        await session.tools()
        long = asyncio.create_task(misbehave(session, do("gate", path=str(gate)), timeout=None))
        assert code_of(await misbehave(session, "never", timeout=SHORT)) == "mcp_timeout"
        assert not long.done()
        gate.touch()
        assert (await long).ok
