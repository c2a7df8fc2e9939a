"""A secret's new version reaches live connections, and no call fails for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bascule.errors import SecretUnbound
from bascule.model.outcome import Outcome
from bascule.model.secret_use import SecretUse, server_use
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from bascule.node.settings import NodeSettings
from bascule.testing import ScriptedHttpServer, ScriptedServer, do
from bascule.testing.http_dialects import SeenRequest
from tests.flow import matrix
from tests.flow.matrix import PLACES, Place, remote_record
from tests.flow.processes import traces
from tests.flow.servers import PATIENT, SHORT, code_of, lines_of, record
from tests.scale import scaled
from tests.waits import SOON_SECONDS, until

place = matrix.place
REMOTE = [place for place in PLACES if place.is_remote]
remote = pytest.mark.parametrize("remote", REMOTE, ids=lambda place: place.name)
REFUSED = do("http", status=401, body="")
OLD = "glpat-old-0123456789"  # pragma: allowlist secret
NEW = "glpat-new-9876543210"  # pragma: allowlist secret


class Served:
    """A server that is given a secret, and what each call of it was made with."""

    def __init__(self, served: ServerRecord, http: ScriptedHttpServer | None = None) -> None:
        self.record = served
        self._http = http

    @property
    def http(self) -> ScriptedHttpServer:
        assert self._http is not None
        return self._http

    def used(self, text: str, outcome: Outcome) -> str:
        """Return the value that a call with this text was made with."""
        if self._http is None:
            assert outcome.ok
            return json.loads(outcome.text)["env"]["TOKEN"]
        return token_of(next(seen for seen in self.calls if text.encode() in seen.body))

    @property
    def calls(self) -> list[SeenRequest]:
        """Return the calls that came in over HTTP."""
        return [seen for seen in self.http.requests if seen.method == "tools/call"]


def token_of(seen: SeenRequest) -> str:
    return seen.headers["Authorization"].removeprefix("Bearer ")


@asynccontextmanager
async def serving(
    place: Place, script: ScriptedServer, **fields: Any
) -> AsyncGenerator[Served, None]:
    """Serve a script whose record refers to the secret ``token``."""
    script = replace(script, era=place.era)
    if not place.is_remote:
        yield Served(record(script, env={"TOKEN": "secret://token"}, **fields))
        return
    fields = {"transport": place.transport, "auth_ref": "secret://token", **fields}
    async with ScriptedHttpServer(server=script, **place.settings) as http:
        yield Served(remote_record(http, **fields), http)


def accepting(token: str, method: str = "tools/call") -> Callable[[SeenRequest], Any]:
    """Have requests of a method refused that come with another token."""
    return lambda seen: REFUSED if seen.method == method and token_of(seen) != token else None


def settings(**changes: Any) -> NodeSettings:
    return msgspec.structs.replace(PATIENT, **changes)


async def call(session: Session, tool: str, text: str) -> Outcome:
    async with asyncio.timeout(SOON_SECONDS):
        return await session.call(f"mcp__bad__{tool}", {"text": text})


async def reached(gate: Path) -> None:
    """Wait until a call stands at a gate."""
    await until(lambda: lines_of(gate.with_suffix(".ledger")))


def gated(gate: Path) -> dict[str, object]:
    """Return a step that marks its begin and waits until the gate is there."""
    waiting = do("gate", path=str(gate), then="env")
    return do("ledger", path=str(gate.with_suffix(".ledger")), then=waiting)


# A new version


async def test_a_new_version_is_used_by_every_call_after_it_and_none_fails(place: Place):
    vault = {"token": "v"}  # too short to be masked, so that the server can tell it
    stop = asyncio.Event()
    newest: set[str] = set()

    async def calling(worker: int) -> int:
        made = 0
        while not stop.is_set():
            before, text = vault["token"], f"w{worker}-{made};"
            outcome = await call(session, "env", text)
            assert outcome.ok, outcome.error
            used = served.used(text, outcome)
            assert used >= before
            newest.add(used)
            made += 1
        return made

    async with (
        serving(place, ScriptedServer(behaviours={"env": "env"})) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        workers = [asyncio.create_task(calling(worker)) for worker in range(6)]
        for version in range(scaled(50) + 1):
            vault["token"] = f"v{version:02}"
            bridge.renew_secret("token")
            await until(lambda: vault["token"] in newest or any(task.done() for task in workers))
        stop.set()
        assert all(await asyncio.gather(*workers))


async def test_a_call_under_way_ends_on_the_old_process_which_ends_after_it(tmp_path: Path):
    vault, gate = {"token": "v1"}, tmp_path / "gate"
    script = ScriptedServer(behaviours={"env": "env", "slow": gated(gate)})
    async with (
        serving(PLACES[0], script) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        slow = asyncio.create_task(call(session, "slow", "a"))
        await reached(gate)
        [old] = traces(str(gate))
        vault["token"] = "v2"
        bridge.renew_secret("token")
        assert served.used("b", await call(session, "env", "b")) == "v2"
        assert not slow.done()
        [new] = set(traces(str(gate))) - {old}
        gate.touch()
        assert served.used("a", await slow) == "v1"
        await until(lambda: traces(str(gate)) == [new])
        assert served.used("c", await call(session, "env", "c")) == "v2"
        assert traces(str(gate)) == [new]


async def test_the_old_session_over_http_is_ended_after_its_last_call(tmp_path: Path):
    vault, gate = {"token": OLD}, tmp_path / "gate"
    script = ScriptedServer(behaviours={"echo": "echo", "slow": gated(gate)})
    legacy = next(place for place in PLACES if place.name == "http legacy stateful")
    async with (
        serving(legacy, script) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        slow = asyncio.create_task(call(session, "slow", "a"))
        await reached(gate)
        [old] = served.http.sessions
        vault["token"] = NEW
        bridge.renew_secret("token")
        assert (await call(session, "echo", "b")).ok
        assert old in served.http.sessions
        assert len(served.http.sessions) == 2
        gate.touch()
        assert (await slow).ok
        await until(lambda: old not in served.http.sessions)
        assert served.http.sessions


async def test_connections_of_one_session_each_are_renewed_as_well(tmp_path: Path):
    vault, starts = {"token": "v1"}, tmp_path / "starts"
    script = ScriptedServer(behaviours={"env": "env"}, starts=starts)
    async with (
        serving(PLACES[1], script, sharing="session") as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as one,
        bridge.session(server_ids=["bad"]) as other,
    ):
        used = [served.used("a", await call(each, "env", "a")) for each in (one, other)]
        vault["token"] = "v2"
        bridge.renew_secret("token")
        used += [served.used("a", await call(each, "env", "a")) for each in (one, other)]
        assert used == ["v1", "v1", "v2", "v2"]
        await until(lambda: len(lines_of(starts)) == 4 and len(traces(str(starts))) == 2)


async def test_a_secret_that_a_connection_did_not_read_leaves_it_alone(tmp_path: Path):
    vault, starts = {"token": "v1", "other": "x"}, tmp_path / "starts"
    script = ScriptedServer(behaviours={"env": "env"}, starts=starts)
    async with (
        serving(PLACES[0], script) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await call(session, "env", "a")).ok
        bridge.renew_secret("other")
        assert (await call(session, "env", "b")).ok
        assert len(lines_of(starts)) == 1


async def test_where_there_is_room_for_one_process_the_new_one_waits_for_the_old(tmp_path: Path):
    vault, gate = {"token": "v1"}, tmp_path / "gate"
    script = ScriptedServer(behaviours={"env": "env", "slow": gated(gate)})
    async with (
        serving(PLACES[1], script) as served,
        Bridge.open(
            [served.record], secrets=vault, settings=NodeSettings(max_processes=1)
        ) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        slow = asyncio.create_task(call(session, "slow", "a"))
        await reached(gate)
        vault["token"] = "v2"
        bridge.renew_secret("token")
        waiting = asyncio.create_task(call(session, "env", "b"))
        assert (await asyncio.wait({waiting}, timeout=SHORT))[0] == set()
        gate.touch()
        assert (await slow).ok
        assert served.used("b", await waiting) == "v2"


async def test_a_call_under_way_ends_with_the_bridge_on_whichever_connection(tmp_path: Path):
    vault, gate = {"token": "v1"}, tmp_path / "gate"
    script = ScriptedServer(behaviours={"env": "env", "slow": gated(gate)})
    async with serving(PLACES[0], script) as served:
        async with Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge:
            session = bridge.session(server_ids=["bad"])
            slow = asyncio.create_task(call(session, "slow", "a"))
            await reached(gate)
            bridge.renew_secret("token")
            assert (await call(session, "env", "b")).ok
        assert code_of(await slow) == "mcp_outcome_unknown"
        assert not traces(str(gate))


# A refusal


@remote
async def test_a_refused_secret_is_read_once_more_and_the_call_is_sent_again(remote: Place):
    vault = {"token": OLD}
    async with (
        serving(remote, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await call(session, "echo", "first")).ok
        vault["token"] = NEW
        served.http.choose = accepting(NEW)
        outcome = await call(session, "echo", "second")
        assert outcome.ok, outcome.error
        made = [token_of(seen) for seen in served.calls if b"second" in seen.body]
        assert made == [OLD, NEW]
        assert (await call(session, "echo", "third")).ok
        assert [token_of(seen) for seen in served.calls if b"third" in seen.body] == [NEW]


@remote
async def test_calls_refused_together_are_renewed_once_and_none_fails(remote: Place):
    vault = {"token": OLD}
    async with (
        serving(remote, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await call(session, "echo", "first")).ok
        greetings = served.http.count("initialize") + served.http.count("server/discover")
        vault["token"] = NEW
        served.http.choose = accepting(NEW)
        outcomes = await asyncio.gather(*(call(session, "echo", f"n{n}") for n in range(8)))
        assert [code_of(outcome) for outcome in outcomes] == ["ok"] * 8
        again = served.http.count("initialize") + served.http.count("server/discover")
        assert again - greetings == 1


@remote
async def test_a_tool_list_that_is_refused_is_asked_for_with_the_new_secret(remote: Place):
    vault = {"token": OLD}
    rules = settings(list_ttl_seconds=0.0)
    async with (
        serving(remote, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open([served.record], secrets=vault, settings=rules) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert len(await session.tools()) == 1
        vault["token"] = NEW
        served.http.choose = accepting(NEW, "tools/list")
        async with bridge.session(server_ids=["bad"]) as later:
            assert len(await later.tools()) == 1
            assert not later.explain("bad").decision.reason.startswith("un")


@remote
async def test_a_secret_that_is_refused_and_has_not_changed_is_an_error_as_ever(remote: Place):
    async with (
        serving(remote, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open([served.record], secrets={"token": OLD}, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await call(session, "echo", "first")).ok
        served.http.choose = accepting(NEW)
        outcome = await call(session, "echo", "second")
        assert code_of(outcome) == "mcp_unavailable"
        assert "refuses our credential: HTTP 401" in str(outcome.error)
        assert sum(b"second" in seen.body for seen in served.calls) == 1


class Restless:
    """A vault that gives another value each time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def secret(self, name: str, use: SecretUse) -> str:
        del name, use
        self.asked += 1
        return f"restless-value-{self.asked}"


@remote
async def test_a_secret_that_changes_all_the_time_is_tried_twice_and_no_more(remote: Place):
    async with (
        serving(remote, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open([served.record], secrets=Restless(), settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await call(session, "echo", "first")).ok
        served.http.choose = lambda seen: REFUSED if seen.method == "tools/call" else None
        assert code_of(await call(session, "echo", "second")) == "mcp_unavailable"
        assert sum(b"second" in seen.body for seen in served.calls) == 2


# Missing and unbound


class Binding:
    """A vault whose one secret is bound to one use."""

    def __init__(self, use: SecretUse | None) -> None:
        self.use = use
        self.asked: list[SecretUse] = []

    async def secret(self, name: str, use: SecretUse) -> str:
        self.asked.append(use)
        if use != self.use:
            raise SecretUnbound(f"the secret {name!r} is not bound to server {use.id!r}")
        return OLD


@pytest.mark.requirement("references:secret:resolve")
async def test_a_server_whose_secret_is_not_bound_to_it_fails_alone_and_says_so(place: Place):
    async with (
        serving(place, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open(
            [served.record, record(ScriptedServer(behaviours={"echo": "echo"}), "good")],
            secrets=(vault := Binding(None)),
            settings=settings(backoff_seconds=3600.0),
        ) as bridge,
        bridge.session(server_ids=["bad", "good"]) as session,
    ):
        tools = await session.tools()
        assert [tool.server_id for tool in tools] == ["good"]
        decision = session.explain("bad").decision
        assert (decision.layer, decision.reason) == ("node", "secret_unbound")
        [status] = [one for one in bridge.statuses() if one.server_id == "bad"]
        assert "the secret 'token' is not bound to server 'bad'" in str(status.last_error)
        assert set(vault.asked) == {server_use(served.record)}
        vault.use = server_use(served.record)
        bridge.renew_secret("token")  # whatever pause its failures had earned
        assert (await call(session, "echo", "x")).ok


async def test_a_secret_that_is_set_later_is_used_at_once(place: Place):
    vault: dict[str, str] = {}
    async with (
        serving(place, ScriptedServer(behaviours={"env": "env"})) as served,
        Bridge.open(
            [served.record], secrets=vault, settings=settings(backoff_seconds=3600.0)
        ) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert not await session.tools()
        assert session.explain("bad").decision.reason == "env_missing"
        [status] = bridge.statuses()
        assert "there is no secret named 'token'" in str(status.last_error)
        vault["token"] = "v1"
        bridge.renew_secret("token")
        outcome = await call(session, "env", "a;")
        assert served.used("a;", outcome) == "v1"


# What is hidden


async def test_a_value_stays_masked_after_its_secret_has_another(place: Place):
    vault = {"token": OLD}
    async with (
        serving(place, ScriptedServer(behaviours={"echo": "echo"})) as served,
        Bridge.open([served.record], secrets=vault, settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        assert (await call(session, "echo", "first")).ok
        vault["token"] = NEW
        bridge.renew_secret("token")
        for value in (OLD, NEW):
            assert value not in (await call(session, "echo", f"it was {value}, they say")).text
            assert value not in bridge.presentable_text(f"refused: {value}")
        assert {OLD, NEW} <= bridge.caller.reference_values  # what logs are masked by
