"""Calls that need approval at a node beside its control plane; real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from openai import AsyncOpenAI

from bascule.control.approval_hook import hook_key
from tests.client.peers import nobody
from tests.control.hook_site import receiving, saying
from tests.doors.gateway.mcp_caller import McpCaller, messages_of, over_http
from tests.flow.node_process import (
    TASK,
    Plane,
    filled,
    lists_notes,
    node,
    notes,
    plane,
    until_state,
)
from tests.flow.test_node_serve import port_of
from tests.flow.up_process import Json, Up, run
from tests.postgres.proxy import proxy
from tests.postgres.replicas import replicas
from tests.waits import SOON_SECONDS, until

APPROVALS = "/admin/api/approvals"
DELETE = "mcp__notes__delete_note"
AT_ONCE = {"BASCULE_CHAT_APPROVAL_WAIT_SECONDS": "0"}
SAID = 'call notes.delete_note with {"name": "shopping"} and call notes.list_notes'
MESSAGES: list[Any] = [{"role": "user", "content": SAID}]
RULES: Json = {"rules": [{"tools": ["notes/delete_note"], "effect": "require_approval"}]}


class Site(Struct):
    """A control plane that wants approval for one tool, a node, and a client's token."""

    plane: Plane
    node: Up
    client: str
    #: The node's own.
    token: str

    async def call(self, **more: Any) -> tuple[int, Json]:
        """Delete a note; return what comes of it."""
        body = {"name": DELETE, "arguments": {"name": "shopping"}, **more}
        return await self.node.ask("POST", "/api/v1/tools/call", token=self.client, body=body)

    async def asked(self) -> str:
        """Call, and return the id of the question."""
        status, outcome = await self.call()
        assert (status, outcome["error"]["code"]) == (409, "mcp_approval_required"), outcome
        return outcome["error"]["details"]["approval_id"]

    async def decide(self, id: str, verb: str = "approve") -> None:
        words = ("approvals", verb, id, *(("--yes",) if verb == "approve" else ()), "--json")
        code, _, err = await run(*words, "--data-dir", str(self.plane.up.data))
        assert code == 0, err

    async def question(self, id: str) -> Json:
        return await self.plane.up.get(f"{APPROVALS}/{id}")

    async def state(self, id: str) -> str:
        return (await self.question(id))["state"]

    async def pending(self) -> list[Json]:
        return (await self.plane.up.get(f"{APPROVALS}?state=pending"))["approvals"]

    async def one_pending(self) -> str:
        """Wait until there is a question; return its id."""

        async def is_there() -> bool:
            return len(await self.pending()) == 1

        await until(is_there)
        return (await self.pending())[0]["id"]

    async def has_note(self) -> bool:
        _, outcome = await self.node.call(self.client, "mcp__notes__list_notes")
        return "shopping" in json.dumps(outcome)


@asynccontextmanager
async def site(folder: Path, served_with: dict[str, str] | None = None) -> AsyncGenerator[Site]:
    """Serve both; the node does not wait for approval by itself."""
    async with filled(folder / "plane", **(served_with or {})) as (served, token, client):
        await served.put("platform", "", RULES)
        async with node(folder / "node", served.grpc, token, **AT_ONCE) as up:
            yield Site(served, up, client, token)


# --- with the control plane


@pytest.mark.requirement("approval:nodes")
async def test_a_call_at_a_node_runs_once_when_somebody_has_approved_it(tmp_path: Path):
    async with site(tmp_path) as at:
        id = await at.asked()
        assert await at.asked() == id
        asked = await at.question(id)
        assert (asked["node"], asked["whole"], asked["caller"]) == ("east", True, "client")
        assert json.loads(asked["arguments"]) == {"name": "shopping"}
        listed = await run("approvals", "list", "--data-dir", str(at.plane.up.data))
        assert "client at east" in listed[1]
        await at.decide(id)
        assert await at.has_note()
        status, outcome = await at.call()
        assert (status, outcome["ok"]) == (200, True), outcome
        assert not await at.has_note()
        assert await at.state(id) == "claimed"
        assert await at.asked() != id, "it was used"
        trail = await at.plane.up.get(f"/admin/api/audit?approval_id={id}&event=approval")
        steps = [one["event"] for one in trail["entries"]][::-1]
        assert [one["state"] for one in steps] == ["pending", "approved", "claimed"]
        assert {one["node"] for one in steps} == {"east"}
        found = await at.plane.up.get(f"/admin/api/audit?approval_id={id}&event=call_intent")
        [intent] = found["entries"]
        assert intent["event"]["request_id"] == steps[2]["request_id"] == outcome["request_id"]
        assert intent["status"] == "unknown", "only the node knows what came of it"


@pytest.mark.requirement("approval:nodes")
async def test_a_call_that_waits_at_a_node_is_answered_by_a_decision(tmp_path: Path):
    async with site(tmp_path) as at:
        waiting = asyncio.create_task(at.call(approval_wait_ms=30_000))
        id = await at.one_pending()
        await at.decide(id, "deny")
        status, outcome = await waiting
        assert (status, outcome["error"]["code"]) == (403, "mcp_approval_denied"), outcome
        assert await at.has_note()
        status, outcome = await at.call()
        assert outcome["error"]["code"] == "mcp_approval_denied", "a denial answers for a while"
        seen = await at.node.ask("GET", f"/api/v1/approvals/{id}", token=at.client)
        assert (seen[0], seen[1]["state"]) == (200, "denied")
        other, _ = await at.plane.token("client", "--task", "t")

        async def is_known() -> bool:
            return (await at.node.ask("GET", "/api/v1/identity", token=other))[0] == 200

        await until(is_known)
        assert (await at.node.ask("GET", f"/api/v1/approvals/{id}", token=other))[0] == 404


@pytest.mark.requirement("approval:nodes")
async def test_a_client_of_the_gateway_of_a_node_waits_and_is_told_for_what(tmp_path: Path):
    async with site(tmp_path) as at:
        way, both = over_http(at.node.http, at.node.url), "application/json, text/event-stream"
        caller = McpCaller(way, at.client, "/mcp/servers/notes", headers={"Accept": both})
        asked = {"name": "delete_note", "arguments": {"name": "shopping"}}
        meta = {"progressToken": "p"}
        waiting = asyncio.create_task(caller.ask("tools/call", asked, meta=meta))
        id = await at.one_pending()
        await at.decide(id)
        first, *_, last = messages_of(await waiting)
        assert f"waits for approval {id}" in first["params"]["message"]
        assert not last["result"].get("isError"), last
        assert not await at.has_note()


@pytest.mark.requirement("approval:nodes")
async def test_who_hangs_up_at_a_node_takes_the_question_back(tmp_path: Path):
    async with site(tmp_path) as at:
        waiting = asyncio.create_task(at.call(approval_wait_ms=30_000))
        id = await at.one_pending()
        waiting.cancel()

        async def is_withdrawn() -> bool:
            return await at.state(id) == "withdrawn"

        await until(is_withdrawn)


async def test_a_question_of_a_node_that_nobody_answers_expires(tmp_path: Path):
    async with site(tmp_path, {"BASCULE_APPROVALS_DECIDE_SECONDS": "2"}) as at:
        status, outcome = await at.call(approval_wait_ms=30_000)
        assert (status, outcome["error"]["code"]) == (403, "mcp_approval_denied"), outcome
        assert "in time" in outcome["error"]["message"]
        assert await at.state(outcome["error"]["details"]["approval_id"]) == "expired"
        assert await at.has_note()


async def test_an_approval_does_not_outlive_a_change_of_the_rules_it_was_given_under(
    tmp_path: Path,
):
    async with site(tmp_path) as at:
        id = await at.asked()
        await at.decide(id)
        rule = {"tools": ["notes/delete_*"], "effect": "require_approval"}
        await at.plane.put("platform", "", {"rules": [rule, *RULES["rules"]]})

        async def is_asked_anew() -> bool:
            status, outcome = await at.call()
            assert status in {403, 409}, outcome
            return outcome["error"]["details"].get("approval_id") != id

        await until(is_asked_anew)
        assert await at.state(id) == "void"
        assert await at.has_note()


# --- without it


@pytest.mark.requirement("approval:nodes:away")
async def test_without_its_control_plane_a_node_makes_no_call_that_needs_approval(tmp_path: Path):
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(site(tmp_path))
        id = await at.asked()
        await at.decide(id)
        at.plane.up.process.kill()
        await at.plane.up.process.wait()
        status, outcome = await at.call()
        assert (status, outcome["error"]["code"]) == (503, "mcp_unavailable"), outcome
        assert "at the control plane, which does not answer" in outcome["error"]["message"]
        assert at.plane.grpc not in str(outcome), "where it is, is not for everybody"
        assert await lists_notes(at.node, at.client)
        assert await at.has_note()
        back = plane(at.plane.up.data, "--grpc-port", port_of(at.plane.grpc))
        at.plane = await stack.enter_async_context(back)
        await until_state(at.node, "ok")
        status, outcome = await at.call()
        assert (status, outcome["ok"]) == (200, True), outcome
        assert await at.state(id) == "claimed"


@pytest.mark.requirement("approval:nodes:away")
async def test_a_call_goes_on_waiting_while_the_control_plane_is_started_again(tmp_path: Path):
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(site(tmp_path))
        waiting = asyncio.create_task(at.call(approval_wait_ms=60_000))
        id = await at.one_pending()
        at.plane.up.process.kill()
        await at.plane.up.process.wait()
        back = plane(at.plane.up.data, "--grpc-port", port_of(at.plane.grpc))
        at.plane = await stack.enter_async_context(back)
        assert await at.state(id) == "pending", "a lost connection is nobody who hung up"
        await at.decide(id)
        status, outcome = await waiting
        assert (status, outcome["ok"]) == (200, True), outcome
        assert not await at.has_note()


async def test_a_node_that_ends_lets_whoever_waits_come_back(tmp_path: Path):
    async with site(tmp_path) as at:
        waiting = asyncio.create_task(at.call(approval_wait_ms=60_000))
        id = await at.one_pending()
        assert await at.node.end() == 0
        status, outcome = await waiting
        assert (status, outcome["error"]["code"]) == (409, "mcp_approval_required"), outcome
        assert outcome["error"]["details"]["approval_id"] == id
        assert await at.state(id) == "pending"


# --- replicas, and programs that decide


async def minted(up: Up, **wanted: str) -> str:
    status, made = await up.ask("POST", "/admin/api/tokens", token=up.admin, body=wanted)
    assert status == 201, made
    return made["token"]


@pytest.mark.requirement("approval:nodes:replicas")
async def test_a_call_outlives_the_replica_that_it_was_asked_at(tmp_path: Path):
    alone = ("registry", "serve")
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(replicas(tmp_path))
        a = await made.start("a", command=alone)
        first = Plane(a, (await a.next_lines(1))[0].rpartition(" ")[2])
        await first.put("servers", "notes", notes())
        await first.put("tasks", "t", TASK)
        await first.put("platform", "", RULES)
        token = await minted(a, role="node", name="east")
        client = await minted(a, role="client", name="agent", task_id="t")
        other = nobody().rpartition(":")[2]
        front = await stack.enter_async_context(proxy(first.grpc, f"127.0.0.1:{other}"))
        started = node(tmp_path / "node", front.removeprefix("http://"), token)
        at = Site(first, await stack.enter_async_context(started), client, token)
        waiting = asyncio.create_task(at.call(approval_wait_ms=60_000))
        id = await at.one_pending()
        b = await made.start("b", "--grpc-port", other, command=alone)
        b.admin = a.admin
        a.process.kill()
        await a.process.wait()
        at.plane = Plane(b, f"127.0.0.1:{other}")
        question = await at.question(id)
        assert question["state"] == "pending"
        body = {"decision": "approve", "digest": question["digest"]}
        path = f"{APPROVALS}/{id}/decision"
        assert (await b.ask("POST", path, token=b.admin, body=body))[0] == 200
        status, outcome = await waiting
        assert (status, outcome["ok"]) == (200, True), outcome
        assert await at.state(id) == "claimed"


async def test_a_program_decides_on_a_call_of_a_node(tmp_path: Path):
    key = hook_key(tmp_path / "plane")
    async with receiving(saying("approve"), key) as receiver:
        env = {"BASCULE_APPROVALS_HOOK_URL": receiver.url.text}
        async with site(tmp_path, env) as at:
            status, outcome = await at.call(approval_wait_ms=30_000)
            assert (status, outcome["ok"]) == (200, True), outcome
        [question] = receiver.heard
        assert (question.node, question.tool) == ("east", "delete_note")


# --- turns that wait


async def chat(at: Site, resume: str | None = None) -> Any:
    async with AsyncOpenAI(
        base_url=f"{at.node.url}/v1", api_key=at.client, max_retries=0, timeout=SOON_SECONDS
    ) as client:
        more = {} if resume is None else {"mcp": {"resume": resume}}
        return await client.chat.completions.create(
            model="rehearsal", messages=MESSAGES, extra_body=more
        )


@pytest.mark.requirement("approval:nodes:turns")
@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_a_turn_that_is_parked_at_a_node_outlives_its_process(tmp_path: Path, verb: str):
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(site(tmp_path))
        paused = (await chat(at)).model_extra["bascule"]["paused"]
        [awaited] = paused["approvals"]
        at.node.process.kill()
        await at.node.process.wait()
        await at.decide(awaited["approval_id"], verb)
        again = node(at.node.data, at.plane.grpc, at.token, **AT_ONCE)
        at.node = await stack.enter_async_context(again)
        answer = await chat(at, paused["resume"])
        said = answer.choices[0].message.content
        assert ("mcp_approval_denied" in said) is (verb == "deny")
        assert "list_notes said" in said, "which had run before the process was killed"
        assert await at.has_note() is (verb == "deny")
        stands = "claimed" if verb == "approve" else "denied"
        assert await at.state(awaited["approval_id"]) == stands
