"""The client: which era a server speaks, and what becomes of lists and calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import (
    DeadlineExceeded,
    MalformedReply,
    NotDelivered,
    OutcomeUnknown,
    RemoteError,
    ServerUnavailable,
)
from bascule.model.call import Beside, Progress
from bascule.node.pool.client import ClientEvents, McpClient, OpenChannel, connect
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.spawn import Launch
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.stdio import StdioChannel
from bascule.node.pool.transport.taps import Tap
from bascule.testing import ScriptedServer, do, tool
from bascule.wire.era import Peer
from tests.waits import until

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
INITIALISED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "old", "version": "1"},
}


def within(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@contextlib.asynccontextmanager
async def started(server: ScriptedServer) -> AsyncGenerator[OpenChannel]:
    """A way to open channels to this server, as often as needed."""
    spawner = PlainSpawner()
    command, args = server.command

    async def open_channel(events: Events) -> Channel:
        return StdioChannel(await spawner.spawn(Launch((command, *args), {})), events)

    try:
        async with asyncio.timeout(20):
            yield open_channel
    finally:
        await spawner.close()


@contextlib.asynccontextmanager
async def connected(
    server: ScriptedServer, *, seconds: float = 10, **options: Any
) -> AsyncGenerator[McpClient]:
    async with started(server) as open_channel:
        client = await connect(open_channel, deadline=within(seconds), **options)
        try:
            yield client
        finally:
            await client.close()


class FakeChannel:
    """A channel whose answers are written down: a value, an error to raise, or a future."""

    apart = False

    def __init__(self, events: Events, answers: dict[str, Any]) -> None:
        self.events = events
        self.answers = answers
        self.alive = True
        self.requests: list[str] = []
        self.notifications: list[str] = []

    async def request(
        self,
        method: str,
        params: bytes,
        *,
        deadline: float,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        tap: Tap | None = None,
    ) -> Any:
        json.loads(params)
        self.requests.append(method)
        answer = self.answers[method]
        if isinstance(answer, asyncio.Future):
            return await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def settle(self, peer: Peer) -> None:
        self.settled = peer

    def notify(self, method: str, params: bytes) -> None:
        self.notifications.append(method)

    def diagnosis(self) -> str:
        return "it hurts"

    async def close(self) -> None:
        self.alive = False


def fakes(*answers: dict[str, Any]) -> tuple[list[FakeChannel], OpenChannel]:
    """Channels to be opened one after the other, and who opens them."""
    made: list[FakeChannel] = []

    async def open_channel(events: Events) -> Channel:
        made.append(FakeChannel(events, answers[len(made)]))
        return made[-1]

    return made, open_channel


def silence() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


# -- eras -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "era", "version"),
    [
        (ScriptedServer(era="modern", instructions="be kind"), "modern", "2026-07-28"),
        (ScriptedServer(era="dual", instructions="be kind"), "modern", "2026-07-28"),
        (ScriptedServer(era="legacy", instructions="be kind"), "legacy", "2025-11-25"),
        (
            ScriptedServer(era="legacy", version="2024-11-05", instructions="be kind"),
            "legacy",
            "2024-11-05",
        ),
    ],
)
@pytest.mark.parametrize("hint", [None, "modern", "legacy"])
async def test_every_era_is_found_whatever_was_hinted(
    server: ScriptedServer, era: str, version: str, hint: Any
):
    if hint == "legacy" and server.era == "dual":
        era, version = "legacy", "2025-11-25"
    async with connected(server, era_hint=hint) as client:
        assert (client.peer.era, client.peer.version) == (era, version)
        assert client.peer.server_info["name"] == "scripted"
        assert client.peer.instructions == "be kind"
        assert client.announces_changes
        result = await client.call_tool("echo", b'{"text":"x"}', deadline=within(5))
        assert result["content"] == [{"type": "text", "text": "x"}]


async def test_a_server_that_exits_on_the_probe_is_started_again_and_greeted(tmp_path: Path):
    starts = tmp_path / "starts"
    closed: list[str] = []
    server = ScriptedServer(era="legacy", on={"server/discover": "die"}, starts=starts)
    async with connected(server, events=ClientEvents(on_closed=closed.append)) as client:
        assert client.peer.era == "legacy"
        assert len((await client.list_tools(deadline=within(5))).tools) == 1
        assert len(starts.read_text(encoding="utf-8").splitlines()) == 2
    assert closed == []


async def test_a_hint_spares_a_fragile_server_the_probe(tmp_path: Path):
    starts = tmp_path / "starts"
    server = ScriptedServer(era="legacy", on={"server/discover": "die"}, starts=starts)
    async with connected(server, era_hint="legacy"):
        assert len(starts.read_text(encoding="utf-8").splitlines()) == 1


async def test_a_server_silent_on_the_probe_is_greeted_on_the_same_process(tmp_path: Path):
    starts, journal = tmp_path / "starts", tmp_path / "journal"
    server = ScriptedServer(
        era="legacy", on={"server/discover": "never"}, starts=starts, journal=journal
    )
    async with connected(server, seconds=4) as client:
        assert client.peer.era == "legacy"
        await client.keepalive(deadline=within(5))
        lines = journal.read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["method"] for line in lines] == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "ping",
        ]
        assert len(starts.read_text(encoding="utf-8").splitlines()) == 1


async def test_a_slow_modern_server_is_still_modern():
    probe = silence()
    made, open_channel = fakes({"server/discover": probe, "initialize": silence()})
    opening = asyncio.create_task(connect(open_channel, deadline=within(0.5)))
    while not made or "initialize" not in made[0].requests:
        await asyncio.wait({opening}, timeout=0.005)
    probe.set_result(DISCOVERED)
    assert (await opening).peer.era == "modern"
    assert made[0].notifications == []


async def test_a_greeting_that_is_refused_waits_for_the_probe():
    probe = silence()
    answers = {"server/discover": probe, "initialize": RemoteError(-32601, "no")}
    made, open_channel = fakes(answers)
    opening = asyncio.create_task(connect(open_channel, deadline=within(0.5)))
    while not made or "initialize" not in made[0].requests:
        await asyncio.wait({opening}, timeout=0.005)
    probe.set_result(DISCOVERED)
    assert (await opening).peer.era == "modern"


@pytest.mark.parametrize(
    "answer",
    [
        RemoteError(-32601, "unknown method"),
        RemoteError(-32000, "not initialised"),
        RemoteError(-32022, "unsupported", {"supported": ["2025-06-18"]}),
        RemoteError(-32022, "unsupported"),
        MalformedReply("unreadable"),
        {"nothing": "of use"},
        "text",
        {"supportedVersions": ["2025-11-25", 7]},
    ],
)
async def test_any_other_answer_to_the_probe_means_legacy(answer: Any):
    made, open_channel = fakes({"server/discover": answer, "initialize": INITIALISED})
    client = await connect(open_channel, deadline=within(5))
    assert client.peer.era == "legacy"
    assert client.peer.server_info == {"name": "old", "version": "1"}
    assert made[0].notifications == ["notifications/initialized"]


async def test_a_refusal_that_names_our_version_is_modern():
    error = RemoteError(-32022, "unsupported", {"supported": ["2026-07-28", "2027-01-01"]})
    _, open_channel = fakes({"server/discover": error})
    assert (await connect(open_channel, deadline=within(5))).peer.era == "modern"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"server/discover": {"supportedVersions": ["2031-01-01"]}}, "offers protocol 2031-01-01"),
        (
            {
                "server/discover": RemoteError(-32601, "no"),
                "initialize": {"protocolVersion": "1999-01-01"},
            },
            "1999-01-01",
        ),
    ],
)
async def test_a_server_without_a_common_version_is_unavailable(
    answers: dict[str, Any], message: str
):
    made, open_channel = fakes(answers)
    with pytest.raises(ServerUnavailable, match=message):
        await connect(open_channel, deadline=within(5))
    assert not made[0].alive


@pytest.mark.parametrize("loss", [OutcomeUnknown("it ended"), NotDelivered("it ended")])
async def test_a_server_that_ends_twice_is_unavailable_and_its_words_are_kept(loss: Exception):
    made, open_channel = fakes({"server/discover": loss}, {"initialize": loss})
    with pytest.raises(ServerUnavailable, match="it ended; it said: it hurts") as caught:
        await connect(open_channel, deadline=within(5))
    assert type(caught.value) is ServerUnavailable
    assert [channel.alive for channel in made] == [False, False]


async def test_a_server_that_dies_at_its_start_says_why():
    server = ScriptedServer(at_start=[do("stderr", text="no such table"), do("die", code=3)])
    with pytest.raises(ServerUnavailable, match="no such table"):
        async with connected(server):
            pass


async def test_a_server_that_says_nothing_at_all_is_given_up_at_the_deadline():
    server = ScriptedServer(at_start=["stop_reading"])
    with pytest.raises(DeadlineExceeded):
        async with connected(server, seconds=0.3):
            pass


async def test_opening_a_channel_counts_against_the_deadline():
    async def open_channel(events: Events) -> Channel:
        return await silence()

    with pytest.raises(DeadlineExceeded):
        await connect(open_channel, deadline=within(0.05))


async def test_cancelling_the_connecting_closes_what_was_opened():
    made, open_channel = fakes({"server/discover": silence(), "initialize": silence()})
    opening = asyncio.create_task(connect(open_channel, deadline=within(5)))
    while not made or not made[0].requests:
        await asyncio.wait({opening}, timeout=0.005)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not made[0].alive


# -- lists ----------------------------------------------------------------------------------

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


@ERAS
async def test_every_page_is_read_and_every_field_kept(era: Any):
    odd = tool("odd", annotations={"readOnlyHint": "yes"}, vendor={"x": [1]})
    tools = [odd, *(tool(f"t{number}") for number in range(6))]
    server = ScriptedServer(era=era, tools=tools, page_size=2, ttl_ms=1500, cache_scope="public")
    async with connected(server) as client:
        found = await client.list_tools(deadline=within(5))
        assert found.tools == tools
        assert found.warnings == ()
        hints = (1500, "public") if era == "modern" else (None, "private")
        assert (found.ttl_ms, found.cache_scope) == hints


@ERAS
async def test_a_list_in_circles_is_an_error_and_the_next_call_works(era: Any):
    async with connected(ScriptedServer(era=era, pagination="cycle")) as client:
        with pytest.raises(MalformedReply, match="in circles"):
            await client.list_tools(deadline=within(10))
        assert await client.call_tool("echo", b"{}", deadline=within(5))


@ERAS
async def test_of_a_list_that_never_ends_the_first_pages_are_kept_with_a_warning(era: Any):
    async with connected(ScriptedServer(era=era, pagination="endless")) as client:
        found = await client.list_tools(deadline=within(10))
        assert [entry["name"] for entry in found.tools] == ["echo"]
        assert found.warnings == ("tools/list has more than 64 pages; the rest is left out",)
        assert await client.call_tool("echo", b"{}", deadline=within(5))


async def test_a_list_that_is_too_long_is_cut_with_a_warning():
    server = ScriptedServer(tools=[tool(f"t{number}") for number in range(20)], page_size=6)
    async with connected(server) as client:
        found = await client.list_tools(deadline=within(5), max_tools=7)
        assert [entry["name"] for entry in found.tools] == [f"t{number}" for number in range(7)]
        assert found.warnings == ("the server lists more than 7 tools; the rest is left out",)


async def test_entries_that_are_not_objects_are_left_out_with_a_warning():
    async with connected(ScriptedServer(tools=["text", tool("good"), None])) as client:
        found = await client.list_tools(deadline=within(5))
        assert [entry["name"] for entry in found.tools] == ["good"]
        assert found.warnings == ("2 entries of the tool list are not objects",)


@pytest.mark.parametrize("hint", [-1, "soon", True, None])
async def test_a_senseless_caching_hint_is_no_hint(hint: Any):
    async with connected(ScriptedServer(ttl_ms=hint, cache_scope="everyone")) as client:
        found = await client.list_tools(deadline=within(5))
        assert (found.ttl_ms, found.cache_scope) == (None, "private")


@pytest.mark.parametrize("result", [{"tools": {}}, {}, {"tools": [], "nextCursor": 5}, []])
async def test_a_list_that_is_none_is_an_error(result: Any):
    _, open_channel = fakes({"server/discover": DISCOVERED, "tools/list": result})
    client = await connect(open_channel, deadline=within(5))
    with pytest.raises(MalformedReply):
        await client.list_tools(deadline=within(5))


# -- calls ----------------------------------------------------------------------------------


@ERAS
async def test_unknown_fields_and_blocks_of_a_result_survive(era: Any):
    behaviours = {"fields": "unknown_fields", "block": "unknown_block"}
    async with connected(ScriptedServer(era=era, behaviours=behaviours)) as client:
        fields: Any = await client.call_tool("fields", b"{}", deadline=within(5))
        assert fields["vendorResult"] == {"kept": True}
        assert fields["content"][0]["vendorBlock"] == [1]
        block: Any = await client.call_tool("block", b"{}", deadline=within(5))
        assert block["content"][1] == {"type": "hologram", "depth": 3, "data": "AAAA"}


async def test_the_arguments_arrive_as_the_bytes_that_were_given(tmp_path: Path):
    journal = tmp_path / "journal"
    arguments = b'{"text":"\\u00e9","n":1.50,"big":123456789012345678901234567890}'
    async with connected(ScriptedServer(journal=journal)) as client:
        await client.call_tool("echo", arguments, deadline=within(5))
    assert b'"arguments":' + arguments + b"," in journal.read_bytes()


async def test_a_result_without_a_type_is_complete():
    async with connected(ScriptedServer(omit_result_type=True)) as client:
        result: Any = await client.call_tool("echo", b'{"text":"x"}', deadline=within(5))
        assert result["content"][0]["text"] == "x"


@pytest.mark.parametrize(
    ("behaviour", "error", "message"),
    [
        ("unknown_result_type", MalformedReply, "riddle"),
        ("result_not_an_object", MalformedReply, "not an object"),
        ("input_required", RemoteError, "asks for input"),
    ],
)
async def test_a_result_that_we_cannot_use_is_refused(
    behaviour: str, error: type[Exception], message: str
):
    server = ScriptedServer(behaviours={"odd": behaviour, "echo": "echo"})
    async with connected(server) as client:
        with pytest.raises(error, match=message):
            await client.call_tool("odd", b"{}", deadline=within(5))
        assert await client.call_tool("echo", b"{}", deadline=within(5))


@ERAS
async def test_each_call_hears_its_own_progress(era: Any):
    heard: dict[str, list[Progress]] = {"a": [], "b": []}
    server = ScriptedServer(era=era, behaviours={"p": do("progress", count=2)})
    async with connected(server) as client:
        listeners: list[Callable[[Progress], None]] = [heard["a"].append, heard["b"].append]
        await asyncio.gather(
            *(
                client.call_tool(
                    "p", b"{}", deadline=within(5), beside=Beside(on_progress=listener)
                )
                for listener in listeners
            )
        )
    assert heard == {key: [Progress(1, 2), Progress(2, 2)] for key in ("a", "b")}


@pytest.mark.requirement("call:logs:own-connection")
@pytest.mark.parametrize("error", [None, RemoteError(-32603, "no")])
async def test_nobody_listens_to_logs_after_the_end_of_a_call(error: RemoteError | None):
    answer = silence()
    made, open_channel = fakes({"server/discover": DISCOVERED, "tools/call": answer})
    client = await connect(open_channel, deadline=within(5))
    [channel] = made
    channel.events.logs.own = True
    beside = Beside(on_log=print, log_level="info")
    call = asyncio.create_task(client.call_tool("t", b"{}", deadline=within(5), beside=beside))
    await until(lambda: channel.events.logs.listeners)
    if error is None:
        call.cancel()
    else:
        answer.set_exception(error)
    await asyncio.gather(call, return_exceptions=True)
    assert not channel.events.logs.listeners


# -- staying in touch -----------------------------------------------------------------------


@ERAS
async def test_a_sign_of_life_is_asked_for_as_the_era_has_it(era: Any, tmp_path: Path):
    journal = tmp_path / "journal"
    async with connected(ScriptedServer(era=era, journal=journal)) as client:
        await client.keepalive(deadline=within(5))
    last = json.loads(journal.read_text(encoding="utf-8").splitlines()[-1])
    assert last["method"] == ("server/discover" if era == "modern" else "ping")


async def test_a_refused_sign_of_life_is_one():
    server = ScriptedServer(era="legacy", on={"ping": "rpc_error"})
    async with connected(server) as client:
        await client.keepalive(deadline=within(5))


async def test_a_silent_server_shows_no_sign_of_life():
    async with connected(ScriptedServer(era="legacy", on={"ping": "never"})) as client:
        with pytest.raises(DeadlineExceeded):
            await client.keepalive(deadline=within(0.05))


@ERAS
async def test_a_changed_list_is_heard_of_while_listening(era: Any):
    changed = asyncio.Event()
    events = ClientEvents(on_tools_changed=changed.set)
    behaviours = {"change": do("change_tools", tools=[tool("new")])}
    async with connected(ScriptedServer(era=era, behaviours=behaviours), events=events) as client:
        listening = asyncio.create_task(client.listen(deadline=within(5)))
        await client.keepalive(deadline=within(5))
        await client.call_tool("change", b"{}", deadline=within(5))
        await changed.wait()
        listening.cancel()
        await asyncio.wait({listening})
        found = await client.list_tools(deadline=within(5))
        assert [entry["name"] for entry in found.tools] == ["new"]


async def test_listening_ends_when_the_server_ends_it_or_the_deadline_comes():
    server = ScriptedServer(era="modern", behaviours={"end": "end_subscriptions"})
    async with connected(server) as client:
        await client.listen(deadline=within(0.05))
        listening = asyncio.create_task(client.listen(deadline=within(5)))
        await client.keepalive(deadline=within(5))
        await client.call_tool("end", b"{}", deadline=within(5))
        await listening


async def test_the_loss_of_a_connection_is_reported_once():
    closed: list[str] = []
    server = ScriptedServer(behaviours={"die": do("die", code=9)})
    async with connected(server, events=ClientEvents(on_closed=closed.append)) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("die", b"{}", deadline=within(5))
        assert not client.channel.alive
        assert len(closed) == 1
        with pytest.raises(NotDelivered):
            await client.call_tool("die", b"{}", deadline=within(5))
    assert len(closed) == 1
