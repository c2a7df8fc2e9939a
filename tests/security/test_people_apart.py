"""Equal requests for many people through one acting token: nothing of one reaches another."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

from bascule.auth.identity import Principal
from bascule.doors.chat.held_results import HeldResults, ResultsGone
from bascule.doors.sessions import Sessions
from bascule.model.session import SessionRequest
from bascule.node.bridge.session import Session
from bascule.testing.clock import FakeClock
from tests.doors.chat.test_held import back, mixed
from tests.doors.door import TASKS, Door
from tests.doors.gateway.mcp_caller import WAYS, McpCaller, code_of, in_process, opened
from tests.node.fakes import Doorman, Sent, TracingLedger, World, text
from tests.policy.build import server
from tests.scale import scaled

TOOLS = "/api/v1/tools"
CALLS = scaled(20_000)
PEOPLE = [f"p{number}" for number in range(24)]
NARROWINGS = ((), (SessionRequest(read_only=True),), (SessionRequest(tool_denylist=("none*",)),))
USER = "X-Bascule-User"


class LongLedger(TracingLedger):
    """Keeps all events of the test."""

    def __init__(self, trace: list[str]) -> None:
        super().__init__(trace)
        self._kept = deque(maxlen=20 * CALLS + 10_000)


class Gateway:
    """One acting token over the real sessions, and what the server answered to whom."""

    def __init__(self) -> None:
        self.world = World(server("fs", effects={"read": ["read"]}), tasks=TASKS, ledger=LongLedger)
        self.clock = FakeClock()
        self.sessions = Sessions(self.world.core, NoTokens(), clock=self.clock)
        self.held = HeldResults(self.clock)
        self.session_of: dict[str, str] = {}
        self.calls: Counter[Session] = Counter()
        self.served = 0
        self.world.caller.answers("read", self._read)

    async def _read(self, sent: Sent) -> Any:
        """Answer with whose session it came from, and make others overtake."""
        if self.served % 3 == 0:
            overtaken = asyncio.Event()
            asyncio.get_running_loop().call_soon(overtaken.set)
            await overtaken.wait()
        self.served += 1
        return text(f"{sent.session} " + "x" * 40)

    def principal(self, person: str) -> Principal:
        return Principal(
            "gateway", "client", "open", "tok-g", person=person, acts_for_users=True, made_by="ops"
        )

    async def ask(self, person: str, narrowing: tuple[SessionRequest, ...]) -> None:
        """Make the one call that everybody makes; check all that comes of it."""
        principal = self.principal(person)
        async with self.sessions.of(principal, *narrowing) as session:
            outcome = await session.call("fs/read", {"text": "equal"}, max_output_bytes=20)
            self.calls[session] += 1
            assert session.person == person
            assert session.maker == "ops"
            assert self.session_of.setdefault(session.session_id, person) == person
            assert outcome.text.startswith(session.session_id[:10])
            assert outcome.request_id.startswith(session.session_id)
            assert outcome.truncated is not None
            handle = outcome.truncated.handle
            assert handle is not None
            assert session.read_output(handle, 0, 16) == session.session_id
        stranger = self.principal(random.choice([one for one in PEOPLE if one != person]))
        async with self.sessions.of(stranger, *narrowing) as other:
            assert other.session_id != session.session_id
            with pytest.raises(KeyError):
                other.read_output(handle)
        kept = self.held.keep(principal.owner, mixed(person))
        history = back(kept, "one", "two")
        assert person in json.dumps(self.held.restore(principal.owner, history)[0])
        with pytest.raises(ResultsGone):
            self.held.restore(stranger.owner, history)


class NoTokens:
    """A list of tokens on which the one that the test uses stands."""

    async def unaltered(self) -> Any:
        return [type("Record", (), {"id": "tok-g", "expires_at": None})]


@pytest.mark.requirement("security:people:apart")
async def test_nothing_of_one_persons_reaches_another_with_equal_requests():
    gateway, chance = Gateway(), random.Random(16)

    async def caller() -> None:
        for _ in range(CALLS // 20):
            await gateway.ask(chance.choice(PEOPLE), chance.choice(NARROWINGS))

    async with gateway.sessions, asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(caller())
    assert gateway.served == CALLS // 20 * 20
    assert all(session.budget.calls == made for session, made in gateway.calls.items())
    events = gateway.world.ledger.events
    by_session: dict[str, set[str | None]] = defaultdict(set)
    for event in events:
        session_id = getattr(event, "session_id", None)
        if session_id is not None and hasattr(event, "person"):
            by_session[session_id].add(event.person)  # pyright: ignore[reportAttributeAccessIssue]
            assert getattr(event, "token_id", None) == "tok-g"
    assert {one: {person} for one, person in gateway.session_of.items()} == dict(by_session)
    calls = gateway.world.ledger.calls()
    assert len(calls) == gateway.served
    assert {call.person for call in calls} == set(PEOPLE)


async def answers(door: Door, token: dict[str, str], person: str) -> dict[str, Any]:
    answer = await door.call({**token, USER: person}, {"name": "fs/read"})
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.requirement("security:people:apart")
async def test_two_people_of_a_token_have_two_sessions_and_no_outputs_of_each_other():
    door = Door()
    token, long = await door.acting(), {"name": "fs/read", "max_output_bytes": 20}
    door.world.caller.answers("read", text("x" * 100))
    handles: dict[str, str] = {}
    for person in ("alice", "bob"):
        answer = await door.call({**token, USER: person}, long)
        handles[person] = answer.json["truncated"]["handle"]
    for person in handles:
        for owner, handle in handles.items():
            path = f"{TOOLS}/output?handle={handle}"
            answer = await door.get(path, {**token, USER: person})
            assert answer.status == (200 if owner == person else 404)
    assert len(door.sessions) == 2
    opened = {event.session_id: event for event in door.world.ledger.opened()}
    assert sorted(str(event.person) for event in opened.values()) == ["alice", "bob"]
    assert {event.caller for event in opened.values()} == {"gateway"}


@pytest.mark.requirement("security:people:apart")
@pytest.mark.parametrize("way", WAYS)
async def test_at_the_gateway_nobody_has_a_session_or_an_output_of_another(way: str):
    door = Door()
    token = (await door.acting())["Authorization"].removeprefix("Bearer ")
    door.world.caller.answers("read", text("x" * 100))
    callers: dict[str, McpCaller] = {}
    handles: dict[str, str] = {}
    for person in ("alice", "bob"):
        headers = {USER: person, "X-Bascule-Max-Tool-Output-Bytes": "20"}
        callers[person], named = await opened(in_process(door.app), token, "fs", way, **headers)
        cut = (await callers[person].call(named("read")))["result"]
        handles[person] = cut["_meta"]["bascule/truncated"]["handle"]
    for person, caller in callers.items():
        for owner, handle in handles.items():
            read = await caller.call("bascule__read_output", {"handle": handle})
            assert code_of(read) == (None if owner == person else "mcp_invalid_arguments")
    if not callers["bob"].modern:
        callers["bob"].session = callers["alice"].session
        assert (await callers["bob"].ask("tools/list")).status == 404
    callers["bob"].headers.pop(USER)
    assert (await callers["bob"].ask("tools/list")).code == "invalid_request"


@pytest.mark.requirement("security:people:apart")
async def test_one_person_pushes_out_no_session_of_another():
    door = Door(max_per_person=2)
    token = await door.acting()
    bobs = await answers(door, token, "bob")
    for deny in "abcdef":
        await door.clock.advance(1)
        headers = {**token, USER: "alice", "X-Bascule-Tools-Deny": f"{deny}*"}
        assert (await door.get(TOOLS, headers)).status == 200
    assert len(door.sessions) == 3
    again = await answers(door, token, "bob")
    assert again["request_id"].partition("-")[0] == bobs["request_id"].partition("-")[0]


async def test_all_people_of_a_token_have_so_many_sessions_and_the_idlest_makes_room():
    door = Door(max_per_token=3)
    token, other = await door.acting(), await door.acting(name="other")
    await answers(door, other, "zoe")
    for person in ("a", "b", "a", "c", "d"):
        await door.clock.advance(1)
        await answers(door, token, person)
    assert len(door.sessions) == 4
    people = {event.session_id: event.person for event in door.world.ledger.opened()}
    assert [people[session] for session in door.world.caller.released] == ["b"]


async def test_a_session_in_use_is_pushed_out_by_no_other_person():
    door = Door(max_per_token=1)
    token, doorman = await door.acting(), Doorman()
    door.world.caller.answers("read", doorman)
    calling = asyncio.create_task(door.call({**token, USER: "alice"}, {"name": "fs/read"}))
    let_go = await doorman.next()
    answer = await door.get(TOOLS, {**token, USER: "bob"})
    assert (answer.status, answer.code) == (429, "mcp_budget_exceeded")
    let_go.set()
    assert (await calling).status == 200
    [refusal] = [one for one in door.world.ledger.events if type(one).__name__ == "SessionRefusal"]
    assert getattr(refusal, "person", None) == "bob"
    assert (await door.get(TOOLS, {**token, USER: "bob"})).status == 200


async def test_outputs_are_bounded_for_each_person():
    door = Door()
    token, kept = await door.acting(), []
    for number, person in enumerate(("bob", "alice", "alice", "alice")):
        door.world.caller.answers("read", text("x " * 6 * 1024 * 1024))
        headers = {**token, USER: person, "X-Bascule-Tools-Deny": f"none-{number}"}
        cut = (await door.call(headers, {"name": "fs/read"})).json
        kept.append((headers, f"{TOOLS}/output?end=3&handle={cut['truncated']['handle']}"))
        await door.clock.advance(1)
    found = [(await door.get(path, headers)).status for headers, path in kept]
    assert found == [200, 404, 200, 200], "alice's are too many; bob's is not hers to push out"


async def test_the_sessions_of_an_ended_token_end_with_it_whoever_they_were_for():
    door = Door()
    token = await door.acting()
    for person in ("alice", "bob"):
        await answers(door, token, person)
    for record in await door.tokens.records():
        await door.tokens.revoke(record.id)
    await door.sessions.sweep()
    assert len(door.sessions) == 0
