"""What only HTTP can do wrong: the right caller gets a code, the others nothing, and it goes on."""

from __future__ import annotations

import asyncio
import itertools
import json
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bascule.model.call import Progress
from bascule.model.outcome import Outcome
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.node.settings import NodeSettings
from bascule.server import Server
from bascule.testing import ScriptedHttpServer, ScriptedServer, do
from bascule.testing.server import tool
from tests.flow.matrix import remote_record
from tests.flow.servers import PATIENT, any_fault, code_of, lines_of, longer_list, misbehave, works
from tests.scale import scaled
from tests.waits import SOON_SECONDS, until

MEBIBYTE = 1 << 20
#: A restart takes longer than three attempts of ``PATIENT``, a tenth of a second apart.
ENDURING = replace(PATIENT, backoff_seconds=0.1, reconnects=10)
READS = {"read": ["fault"]}
#: Generation, and whether answers come as JSON or as events.
WAYS = [("modern", "json"), ("modern", "sse"), ("legacy", "json"), ("legacy", "sse")]
HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


class Remote:
    """A scripted server over HTTP, and a session on a bridge to it."""

    def __init__(self, http: ScriptedHttpServer, bridge: Bridge, session: Session) -> None:
        self.http = http
        self.bridge = bridge
        self.session = session


@asynccontextmanager
async def remote(
    way: tuple[str, str] = ("modern", "json"),
    script: ScriptedServer | None = None,
    fields: dict[str, Any] | None = None,
    node: NodeSettings = PATIENT,
    **settings: Any,
) -> AsyncGenerator[Remote, None]:
    """Serve a script, connect to it and list its tools."""
    options: dict[str, Any] = {"dialects": (way[0],), "answer": way[1], **settings}
    async with (
        ScriptedHttpServer(server=script or any_fault(), **options) as http,
        Bridge.open([remote_record(http, **fields or {})], settings=node) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        async with asyncio.timeout(10):
            assert (await session.tools()).warnings == ()
        yield Remote(http, bridge, session)


def called(http: ScriptedHttpServer, name: str = "fault") -> int:
    """Return how often a tool was called, as the server saw it."""
    calls = [seen.message for seen in http.requests if seen.method == "tools/call"]
    return sum(call["params"]["name"] == name for call in calls)


# The session


@pytest.mark.requirement("transport:http:session-lost", "call:once")
async def test_a_lost_session_is_opened_again_and_the_call_succeeds(tmp_path: Path):
    executed = tmp_path / "executed"
    async with remote(("legacy", "json")) as it:
        for number in range(1, 4):
            it.http.forget_sessions()
            outcome = await misbehave(it.session, do("ledger", path=str(executed)), timeout=None)
            assert outcome.ok, outcome.error
            assert it.http.count("initialize") == 1 + number
        assert len(lines_of(executed)) == 3
        assert len(it.http.sessions) == 1


@pytest.mark.requirement("transport:http:session-lost")
async def test_many_callers_of_a_lost_session_open_one(tmp_path: Path):
    """The new session is held back until all of them have found out, and one more has come."""
    gate, executed = tmp_path / "gate", tmp_path / "executed"
    greet = do("fixed", result=HANDSHAKE)
    greeted = do("turns", steps=[greet, do("gate", path=str(gate), then=greet)])
    script = any_fault(on={"initialize": greeted}, ledger=executed)
    async with remote(("legacy", "json"), script, {"budgets": {"max_concurrency": 64}}) as it:
        it.http.forget_sessions()
        callers = [
            asyncio.create_task(misbehave(it.session, "ledger", timeout=None)) for _ in range(20)
        ]
        async with asyncio.timeout(10):
            await it.http.saw("initialize", 2)
            await it.http.saw("tools/call", 20)
        latecomer = asyncio.create_task(misbehave(it.session, "ledger", timeout=None))
        gate.touch()
        outcomes = await asyncio.gather(*callers, latecomer)
        assert [code_of(outcome) for outcome in outcomes] == ["ok"] * 21
        assert it.http.count("initialize") == 2
        assert len(lines_of(executed)) == 21


async def test_a_server_that_forgets_every_session_is_unavailable_after_one_more():
    async with remote(("legacy", "json")) as it:
        it.http.choose = lambda seen: "session_lost" if seen.method == "tools/call" else None
        assert code_of(await misbehave(it.session, "echo", timeout=None)) == "mcp_unavailable"
        assert it.http.count("initialize") == 2
        it.http.choose = None
        await works(it.session)


async def test_a_session_that_cannot_be_opened_again_leaves_the_call_undelivered(tmp_path: Path):
    executed = tmp_path / "executed"
    async with remote(("legacy", "json")) as it:
        it.http.forget_sessions()
        failing = do("http", status=500, body="not now", type="text/plain")
        it.http.inject(failing, method="initialize", times=1000)
        outcome = await misbehave(it.session, do("ledger", path=str(executed)), timeout=None)
        assert code_of(outcome) == "mcp_unavailable"
        assert lines_of(executed) == []


async def test_a_lost_session_without_a_word_of_json_is_known_as_well():
    async with remote(("legacy", "json")) as it:
        gone = do("http", status=404, body="gone", type="text/plain")
        it.http.inject(gone, method="tools/call")
        assert (await misbehave(it.session, "echo", timeout=None)).ok
        assert it.http.count("initialize") == 2


async def test_what_a_server_announces_is_heard_in_the_new_session_too():
    async with remote(("legacy", "json")) as it:
        it.http.forget_sessions()
        changed = [tool("echo"), tool("fault"), tool("more")]
        step = do("change_tools", tools=changed)
        assert (await misbehave(it.session, step, timeout=None)).ok
        await longer_list(it.session, 2)


# Answers that are none


@pytest.mark.requirement("outcomes:unknown", "call:once:otherwise-unknown")
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_server_error_leaves_the_outcome_unknown(era: str, status: int):
    failing = do("http", status=status, body="<h1>oops</h1>", type="text/html")
    async with remote((era, "json")) as it:
        it.http.inject(failing, method="tools/call")
        assert code_of(await misbehave(it.session, "echo", timeout=None)) == "mcp_outcome_unknown"
        assert called(it.http) == 1
        await works(it.session)


@pytest.mark.requirement("call:once:resend-idempotent")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", ["reset", do("http", status=500, body="", type="text/plain")])
async def test_a_read_that_met_a_fault_is_sent_once_more(way: tuple[str, str], fault: Any):
    async with remote(way, fields={"effects": READS}) as it:
        it.http.inject(fault, method="tools/call")
        outcome = await misbehave(it.session, "echo", timeout=None)
        assert outcome.ok, outcome.error
        assert called(it.http) == 2


#: Answers that can be read as far as needed to say that they are none, and the code for each.
NO_ANSWERS: dict[str, tuple[Any, str]] = {
    "a page": (do("http", type="text/html", body="<h1>Welcome</h1>"), "mcp_tool_error"),
    "no type": (do("http", type="", body="?"), "mcp_tool_error"),
    "bad JSON": (do("http", body='{"jsonrpc": "2.0", "id": @ID@, "result": {'), "mcp_tool_error"),
    "no JSON": (do("http", body="hello"), "mcp_tool_error"),
    "nothing": (do("http", body=""), "mcp_tool_error"),
    "a foreign id": ("foreign_id", "mcp_tool_error"),
    "another id": ("wrong_id", "mcp_tool_error"),
    "a promise": (do("http", status=202, body=""), "mcp_tool_error"),
    "an unknown encoding": (do("http", headers={"Content-Encoding": "br"}), "mcp_tool_error"),
    "no gzip": (do("http", headers={"Content-Encoding": "gzip"}), "mcp_tool_error"),
    "too many requests": (do("http", status=429, body="slow down"), "mcp_tool_error"),
}


@pytest.mark.requirement("call:bad-frame:own-call")
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("fault", NO_ANSWERS)
async def test_an_answer_that_is_none_fails_its_call_at_once(era: str, fault: str):
    step, code = NO_ANSWERS[fault]
    async with remote((era, "json")) as it:
        it.http.inject(step, method="tools/call")
        assert code_of(await misbehave(it.session, "echo", timeout=None)) == code
        assert called(it.http) == 1
        await works(it.session)


async def test_a_json_rpc_error_counts_whatever_the_status_around_it():
    error = '{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32603,"message":"the disk is full"}}'
    async with remote() as it:
        it.http.inject(do("http", status=500, body=error), method="tools/call")
        outcome = await misbehave(it.session, "echo", timeout=None)
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.message) == ("mcp_tool_error", "the disk is full")


@pytest.mark.requirement("outcomes:unknown")
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    "step", ["foreign_id", "wrong_id", "not_json", do("stream_ends", ids=False)]
)
async def test_a_stream_that_ends_without_the_answer_is_an_unknown_outcome(era: str, step: Any):
    async with remote((era, "sse")) as it:
        outcome = await misbehave(it.session, step, timeout=None)
        assert code_of(outcome) == "mcp_outcome_unknown"
        assert called(it.http) == 1
        await works(it.session)


@pytest.mark.requirement("transport:egress:redirect")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_is_sent_to_another_origin(status: int):
    async with ScriptedHttpServer(server=any_fault()) as other, remote() as it:
        it.http.inject(do("redirect", to=other.url, status=status), method="tools/call")
        assert code_of(await misbehave(it.session, "echo", timeout=None)) == "mcp_unavailable"
        assert other.requests == []
        await works(it.session)


async def test_a_server_that_moved_within_its_origin_is_followed():
    async with ScriptedHttpServer(server=any_fault(), path="/new") as http:
        http.redirects["/old"] = "/new"
        record = Server.http("bad", http.url.replace("/new", "/old"))
        async with Bridge.open([record]) as bridge, bridge.session(server_ids=["bad"]) as session:
            await works(session)
        assert {seen.path for seen in http.requests} == {"/old", "/new"}


# Streams


@pytest.mark.requirement("call:once", "call:progress:reported")
@pytest.mark.parametrize("abrupt", [False, True])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_stream_that_breaks_is_taken_up_where_the_server_allows_it(
    abrupt: bool, times: int, tmp_path: Path
):
    executed = tmp_path / "executed"
    step: Any = do("progress", count=2)
    for _ in range(times):
        step = do("stream_ends", abrupt=abrupt, then=step)
    step = do("ledger", path=str(executed), then=do("progress", count=1, then=step))
    heard: list[Progress] = []
    async with remote(("legacy", "sse"), resumable=True) as it:
        outcome = await misbehave(it.session, step, timeout=None, on_progress=heard.append)
        assert outcome.ok, outcome.error
        assert [(each.progress, each.total) for each in heard] == [(1, 1), (1, 2), (2, 2)]
        resumed = [seen for seen in it.http.requests if "Last-Event-ID" in seen.headers]
        assert len(resumed) == times
        assert called(it.http) == 1
    assert len(lines_of(executed)) == 1


async def test_a_stream_that_never_comes_to_the_point_is_not_resumed_for_ever():
    step: Any = "echo"
    for _ in range(10):
        step = do("stream_ends", then=step)
    async with remote(("legacy", "sse"), resumable=True) as it:
        assert code_of(await misbehave(it.session, step, timeout=None)) == "mcp_outcome_unknown"
        resumed = [seen for seen in it.http.requests if "Last-Event-ID" in seen.headers]
        assert len(resumed) == 3
        await works(it.session)


async def test_a_stream_that_may_not_be_taken_up_again_is_an_unknown_outcome():
    async with remote(("legacy", "sse"), resumable=True) as it:
        it.http.choose = lambda seen: (
            do("http", status=405, body="") if "Last-Event-ID" in seen.headers else None
        )
        outcome = await misbehave(it.session, "stream_ends", timeout=None)
        assert code_of(outcome) == "mcp_outcome_unknown"
        assert called(it.http) == 1
        await works(it.session)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_results_over_a_mebibyte_come_as_events_too(era: str):
    fields = {"budgets": {"max_tool_output_bytes": 8 * MEBIBYTE}}
    async with remote((era, "sse"), fields=fields) as it:
        for size in (MEBIBYTE - 1, MEBIBYTE + 1, 5 * MEBIBYTE):
            outcome = await misbehave(it.session, do("big", bytes=size), timeout=None)
            assert len(outcome.unwrap()) == size


# Connections


@pytest.mark.requirement("outcomes:unknown", "pool:isolation")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["reset", "die"])
async def test_a_connection_lost_in_a_call_is_its_own_callers_trouble(
    way: tuple[str, str], end: str, tmp_path: Path
):
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    waits = do("ledger", path=str(seen), then=do("gate", path=str(gate)))
    async with remote(way) as it:
        siblings = [
            asyncio.create_task(misbehave(it.session, waits, timeout=None)) for _ in range(3)
        ]
        async with asyncio.timeout(10):
            await it.http.saw("tools/call", 3)
        outcome = await misbehave(it.session, end, timeout=None)
        assert code_of(outcome) == "mcp_outcome_unknown"
        await works(it.session)
        gate.touch()
        assert [code_of(each) for each in await asyncio.gather(*siblings)] == ["ok"] * 3
        assert len(lines_of(seen)) == 3
        assert it.bridge.statuses()[0].reconnects == 0


@pytest.mark.requirement("call:deadline", "outcomes:timeout")
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("fault", ["slow_head", "slow_body", "comments"])
async def test_dripping_bytes_do_not_move_the_deadline(era: str, fault: str):
    async with remote((era, "json")) as it:
        assert code_of(await misbehave(it.session, fault)) == "mcp_timeout"
        await works(it.session)


@pytest.mark.requirement("wire:decompressed-cap")
async def test_a_gigabyte_in_a_megabyte_of_gzip_is_refused_before_it_is_unpacked():
    async with remote() as it:
        await works(it.session)
        tracemalloc.start()
        try:
            outcome = await misbehave(it.session, "gzip_bomb", timeout=None)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert code_of(outcome) == "mcp_tool_error"
        assert peak < 64 * MEBIBYTE
        await works(it.session)


@pytest.mark.requirement("pool:connect-timeout", "pool:failure-skips")
async def test_a_port_that_accepts_and_never_answers_ends_in_time():
    done = asyncio.Event()

    async def ignore(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    mute = await asyncio.start_server(ignore, "127.0.0.1", 0)
    target = ScriptedHttpServer(port=mute.sockets[0].getsockname()[1])
    record = remote_record(target, budgets={"connect_timeout_ms": 300})
    async with (
        mute,
        Bridge.open([record], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        async with asyncio.timeout(SOON_SECONDS):
            tools = await session.tools()
        assert "no connection within 0.3 s" in tools.warnings[0]
        done.set()


@pytest.mark.requirement("call:deadline")
async def test_a_server_that_falls_silent_is_noticed_and_found_again():
    fields = {"budgets": {"tool_timeout_ms": 300, "connect_timeout_ms": 1000}}
    async with remote(("legacy", "json"), fields=fields) as it:
        it.http.choose = lambda seen: None if seen.verb == "DELETE" else "never"
        assert code_of(await misbehave(it.session, "echo", timeout=None)) == "mcp_timeout"
        await until(lambda: it.bridge.statuses()[0].state != "connected")
        assert it.bridge.statuses()[0].trouble == "dead"
        assert "dead: neither a call" in (it.bridge.statuses()[0].last_error or "")
        it.http.choose = None
        # No call waits longer than its own 0.3 s; the look goes on.
        await until(lambda: it.bridge.statuses()[0].state == "connected")
        await works(it.session)


@pytest.mark.requirement("transport:http:reconnect", "outcomes:unavailable")
@pytest.mark.parametrize("dialect", ["modern", "legacy", "sse"])
async def test_a_server_that_is_away_is_unavailable_and_found_again(dialect: str, tmp_path: Path):
    executed = tmp_path / "executed"
    transport = "sse" if dialect == "sse" else "http"
    async with remote((dialect, "json"), fields={"transport": transport}) as it:
        await it.http.stop()
        outcome = await misbehave(it.session, do("ledger", path=str(executed)), timeout=None)
        assert code_of(outcome) == "mcp_unavailable"
        assert lines_of(executed) == []
        await it.http.start()

        async def answered() -> bool:
            return code_of(await it.session.call("mcp__bad__echo", {"text": "x"})) == "ok"

        await until(answered)


@pytest.mark.requirement("wire:generations", "transport:http:both-generations")
async def test_a_server_that_comes_back_a_generation_older_is_asked_again():
    async with remote(("modern", "json")) as it:
        it.http.dialects = ("legacy",)
        await it.http.restart()

        async def asked_again() -> bool:
            return not (await it.session.tools()).warnings and it.http.count("initialize") > 0

        await until(asked_again)
        await works(it.session)
        assert (await it.bridge.inspect("bad")).era == "legacy"


@pytest.mark.requirement("wire:generations", "call:once:resend-unsent")
async def test_a_server_that_comes_back_a_generation_newer_is_asked_again(tmp_path: Path):
    """It says by the protocol's own code that it did not take the call: that is sent again."""
    executed = tmp_path / "executed"
    data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
    error = {"code": -32022, "message": "unsupported protocol version", "data": data}
    refusal = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    async with remote(("legacy", "json")) as it:
        it.http.dialects = ("modern",)
        it.http.choose = lambda seen: (
            do("http", status=400, body=refusal)
            if seen.headers.get("MCP-Protocol-Version") == "2025-11-25"
            else None
        )
        await it.http.restart()
        outcome = await misbehave(it.session, do("ledger", path=str(executed)), timeout=None)
        assert outcome.ok, outcome.error
        assert len(lines_of(executed)) == 1
        async with asyncio.timeout(10):
            assert (await it.bridge.inspect("bad")).era == "modern"


#: What an endpoint that is no MCP server says to everything, and what its owner is told.
NO_SERVERS = {
    "a web page": (do("http", type="text/html", body="<h1>Hi</h1>"), "text/html"),
    "a failure": (do("http", status=500, body="it broke", type="text/plain"), "it broke"),
    "a wrong path": (do("http", status=404, body="no such page", type="text/plain"), "HTTP 404"),
    "a refusal": (do("http", status=403, body="", type="text/plain"), "HTTP 403"),
}


@pytest.mark.requirement("pool:failure-skips", "pool:health:last-error")
@pytest.mark.parametrize("fault", NO_SERVERS)
async def test_an_endpoint_that_is_no_server_is_told_apart_by_its_words(fault: str):
    step, words = NO_SERVERS[fault]
    async with ScriptedHttpServer(server=any_fault()) as http:
        http.choose = lambda _seen: step
        async with (
            Bridge.open([remote_record(http)], settings=PATIENT) as bridge,
            bridge.session(server_ids=["bad"]) as session,
        ):
            async with asyncio.timeout(10):
                tools = await session.tools()
            assert len(tools) == 0
            assert words in tools.warnings[0]
            assert words in (bridge.statuses()[0].last_error or "")


@pytest.mark.requirement("transport:legacy-sse", "wire:generations")
async def test_an_endpoint_of_http_and_sse_is_found_under_a_record_for_streamable_http():
    async with remote(("sse", "json")) as it:
        await works(it.session)
        assert (await it.bridge.inspect("bad")).era == "legacy"


# Restarts


class Load:
    """Readers and writers that go on until they are told to stop, and what became of each call."""

    def __init__(self, session: Session, ledger: Path) -> None:
        self._session = session
        self._ledger = ledger
        self._numbers = itertools.count()
        self._news = asyncio.Condition()
        self._finished = [0] * 4
        self.stopping = False
        self.reads: list[str] = []
        self.writes: dict[int, Outcome] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Call while the block runs; whatever happens there, end with it."""
        tasks = [asyncio.create_task(self.read(each)) for each in range(len(self._finished))]
        tasks += [asyncio.create_task(self.write()) for _ in range(2)]
        try:
            yield
        finally:
            self.stopping = True
            async with asyncio.timeout(20):
                await asyncio.gather(*tasks)

    async def read(self, reader: int) -> None:
        """Read again and again."""
        while not self.stopping:
            async with asyncio.timeout(20):
                outcome = await self._session.call("mcp__bad__echo", {"text": "r"})
            self.reads.append(code_of(outcome))
            self._finished[reader] += 1
            async with self._news:
                self._news.notify_all()

    async def write(self) -> None:
        """Write one number after the other."""
        for number in self._numbers:
            arguments = {"n": number, "do": "ledger", "text": str(number)}
            async with asyncio.timeout(20):
                self.writes[number] = await self._session.call("mcp__bad__fault", arguments)
            if self.stopping:
                return

    async def goes_on(self) -> None:
        """Wait for two more reads of each reader: one that met a restart is over by then."""
        before = list(self._finished)

        def gone_on() -> bool:
            return all(now >= old + 2 for now, old in zip(self._finished, before, strict=True))

        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(gone_on)

    def executions(self) -> Counter[int]:
        """Return how often each numbered write was carried out."""
        return Counter(json.loads(line)["n"] for line in lines_of(self._ledger))


@pytest.mark.timeout(300)
@pytest.mark.requirement(
    "transport:http:session-lost",
    "transport:http:reconnect",
    "call:once",
    "call:once:resend-unsent",
)
@pytest.mark.parametrize("way", [*WAYS, ("sse", "json")])
async def test_a_server_restarted_under_load_loses_no_read_and_repeats_no_write(
    way: tuple[str, str], tmp_path: Path
):
    ledger = tmp_path / "executed"
    transport = "sse" if way[0] == "sse" else "http"
    fields = {
        "effects": {"read": ["echo"]},
        "transport": transport,
        "budgets": {"max_concurrency": 64},
    }
    async with remote(way, any_fault(ledger=ledger), fields, ENDURING) as it:
        load = Load(it.session, ledger)
        async with load.running():
            await load.goes_on()
            for _ in range(scaled(100)):
                it.http.requests.clear()
                await it.http.restart()
                await load.goes_on()
                assert it.http.count("initialize") == (0 if way[0] == "modern" else 1)
    assert set(load.reads) == {"ok"}
    done = load.executions()
    assert [number for number, count in done.items() if count > 1] == []
    for number, outcome in load.writes.items():
        code = code_of(outcome)
        assert code in {"ok", "mcp_outcome_unknown", "mcp_unavailable"}
        if code != "mcp_outcome_unknown":
            assert done[number] == (code == "ok")
    assert Counter(map(code_of, load.writes.values()))["ok"] > 10
