"""What a node knows of tokens: whose they are, by digests, and nothing that makes one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from bascule.asgi.verifier import Recaller, Verifier
from bascule.auth.keys import KeyLabel, derived
from bascule.auth.memory_token_store import MemoryTokenStore
from bascule.auth.node_tokens import KeyNotGiven, NodeTokens, handed_out, keys_handed_out
from bascule.auth.token_request import TokenRequest
from bascule.auth.tokens import Tokens
from bascule.doors.sessions import TokenList
from bascule.errors import SessionRefused
from bascule.model.role import ROLES
from bascule.model.snapshot import Snapshot
from bascule.node.sync.last_known_good import FILE_NAME, Knowledge, LastKnownGood
from bascule.testing.clock import FakeClock
from tests.asgi.caller import KEY
from tests.waits import SOON_SECONDS

TASKS = ("writing", "reading")


class Plane:
    """A control plane's tokens, and what a node is given of them."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.tokens = Tokens(MemoryTokenStore(), KEY, self.clock)

    async def given(self, tasks: tuple[str, ...] | None = None) -> NodeTokens:
        node = NodeTokens(clock=self.clock)
        await self.give(node, tasks)
        return node

    async def give(self, node: NodeTokens, tasks: tuple[str, ...] | None = None) -> None:
        records = handed_out(await self.tokens.unaltered(), tasks)
        node.take(records, keys_handed_out(self.tokens.key_for))


async def test_a_node_says_the_same_of_a_clients_token_as_the_control_plane():
    plane = Plane()
    minted = await plane.tokens.mint("agent", "client", task_id="writing", person="ada", by="boss")
    node = await plane.given()
    expected = await plane.tokens.verify(minted.token)
    assert expected is not None
    assert await node.verify(minted.token) == expected
    assert await node.still(minted.token) == expected
    assert node.recall(minted.token.encode()) == expected


@pytest.mark.parametrize("token", ["", "bsc_", "bsc_" + "x" * 43, "no token", "\ud800", "é" * 50])
async def test_what_was_not_handed_out_is_nobodys(token: str):
    plane = Plane()
    await plane.tokens.mint("agent", "client", task_id="writing")
    node = await plane.given()
    assert await node.verify(token) is None
    assert node.recall(token.encode("utf-8", "replace")) is None


async def test_a_node_that_was_given_nothing_knows_nobody():
    token = (await Plane().tokens.mint("agent", "client", task_id="writing")).token
    assert await NodeTokens().verify(token) is None


async def test_a_token_expires_by_the_nodes_own_clock():
    plane = Plane()
    token = (await plane.tokens.mint("agent", "client", task_id="writing", ttl_seconds=60)).token
    node = await plane.given()
    await plane.clock.advance(59)
    assert await node.verify(token) is not None
    await plane.clock.advance(1)
    assert await node.verify(token) is None
    assert node.recall(token.encode()) is None


async def test_what_is_taken_replaces_everything_at_once():
    plane = Plane()
    first = await plane.tokens.mint("one", "client", task_id="writing")
    node = await plane.given()
    before = node.state()
    assert node.state() == before
    second = await plane.tokens.mint("two", "client", task_id="writing")
    await plane.tokens.revoke(first.record.id)
    await plane.give(node)
    assert node.state() != before
    assert await node.verify(first.token) is None
    assert await node.verify(second.token) is not None
    assert [record.id for record in await node.unaltered()] == [second.record.id]


async def test_a_token_that_was_just_made_is_awaited_for_a_moment():
    plane = Plane()
    node = NodeTokens(clock=plane.clock, patience=SOON_SECONDS)
    await plane.give(node)
    other = await plane.tokens.mint("other", "client", task_id="writing")
    found, _ = await asyncio.gather(node.verify(other.token), plane.give(node))
    assert found == await plane.tokens.verify(other.token)


async def test_a_token_that_cannot_be_new_is_refused_without_a_wait():
    plane = Plane()
    minted = await plane.tokens.mint("agent", "client", task_id="writing")
    node = NodeTokens(clock=plane.clock, patience=10 * SOON_SECONDS)
    await plane.give(node)
    assert await node.verify(minted.token) is not None
    await plane.tokens.revoke(minted.record.id)
    await plane.give(node)
    async with asyncio.timeout(SOON_SECONDS):
        assert await node.verify(minted.token) is None
        assert await node.verify("no token at all") is None


async def test_a_token_that_nobody_is_told_of_is_refused_after_a_moment():
    plane = Plane()
    node = NodeTokens(clock=plane.clock, patience=0.01)
    await plane.give(node)
    assert await node.verify((await plane.tokens.mint("a", "client", task_id="w")).token) is None


async def test_somebody_who_is_switched_off_is_refused():
    plane = Plane()
    viewer = (await plane.tokens.mint("v", "viewer", person="ada")).token
    client = (await plane.tokens.mint("c", "client", task_id="writing", person="ada")).token
    node = await plane.given()

    def standing(person: str) -> None:
        raise SessionRefused("person_off", f"{person} is switched off")

    assert await node.verify(viewer) is not None
    node.standing = standing
    with pytest.raises(SessionRefused, match="ada"):
        await node.verify(viewer)
    with pytest.raises(SessionRefused, match="ada"):
        await node.still(viewer)
    assert node.recall(viewer.encode()) is None, "they are asked about each time"
    assert await node.verify(client) is not None, "their session is what asks"


async def test_the_guard_and_the_sessions_can_ask_a_node():
    guards: Verifier = NodeTokens()
    sessions: TokenList = NodeTokens()
    assert isinstance(guards, Recaller)
    assert list(await sessions.unaltered()) == []


# --- what is handed out


async def test_only_those_with_a_use_at_a_node_are_handed_out():
    plane = Plane()
    for role in ROLES:
        await plane.tokens.mint(role, role, task_id="writing" if role == "client" else None)
    given = handed_out(await plane.tokens.unaltered())
    assert sorted(record.role for record in given) == ["client", "viewer"]


async def test_setup_tokens_links_and_pages_are_not_handed_out(tmp_path: Path):
    clock = FakeClock()
    tokens = Tokens(MemoryTokenStore(), KEY, clock, setup_file=tmp_path / "setup")
    assert await tokens.first_start() is not None
    assert handed_out(await tokens.unaltered()) == ()
    opened = TokenRequest(name="page", role="viewer", process=tokens.process)
    linked = TokenRequest(name="link", role="viewer", grants="viewer", ttl_seconds=60)
    page, link = [await tokens.keep(wanted, by="boss") for wanted in (opened, linked)]
    records = await tokens.unaltered()
    assert {record.id for record in records} >= {page.record.id, link.record.id}
    assert handed_out(records) == ()
    node = NodeTokens(records, keys_handed_out(tokens.key_for), clock=clock)
    assert await node.verify(page.token) is None
    assert await node.verify(link.token) is None
    assert await node.unaltered() == tuple(r for r in records if r.role == "admin")


async def test_tokens_of_tasks_that_a_node_does_not_serve_are_not_handed_out():
    plane = Plane()
    for task in TASKS:
        await plane.tokens.mint(task, "client", task_id=task)
        await plane.tokens.mint(f"looks at {task}", "viewer", tasks=(task,))
    await plane.tokens.mint("looks at all", "viewer")
    records = await plane.tokens.unaltered()

    def names(*tasks: str) -> set[str]:
        return {record.name for record in handed_out(records, tasks)}

    assert names("writing") == {"writing", "looks at writing", "looks at all"}
    assert names() == {"looks at all"}
    assert len(handed_out(records)) == 5


async def test_neither_the_root_nor_the_seal_is_handed_out():
    plane = Plane()
    await plane.tokens.mint("agent", "client", task_id="writing")
    records = handed_out(await plane.tokens.unaltered())
    keys = keys_handed_out(plane.tokens.key_for)
    assert set(keys) == {"token-digest", "mcp-session", "cursor"}
    hidden = (KEY, derived(KEY, "token-row"))
    assert not set(hidden) & set(keys.values())
    assert [record.seal for record in records] == [b""]
    forged = Tokens(MemoryTokenStore(), keys["token-digest"], plane.clock)
    made = await forged.mint("forged", "admin")
    assert await plane.tokens.verify(made.token) is None


async def test_a_key_that_was_not_given_is_missed_by_its_name():
    plane = Plane()
    node = await plane.given()
    given: tuple[KeyLabel, ...] = ("token-digest", "mcp-session", "cursor")
    assert [node.key_for(label) for label in given] == [derived(KEY, label) for label in given]
    with pytest.raises(KeyNotGiven, match="'token-row'; it has those for: cursor, mcp-session"):
        node.key_for("token-row")
    with pytest.raises(KeyNotGiven, match="nothing"):
        NodeTokens().key_for("cursor")


# --- without the control plane


@pytest.mark.requirement("sync:persisted:tokens")
async def test_a_node_serves_known_clients_from_its_disk_alone(tmp_path: Path):
    plane = Plane()
    minted = await plane.tokens.mint("agent", "client", task_id="writing", ttl_seconds=60)
    known = Knowledge(
        snapshot=Snapshot(store_id="a", revision=1),
        tokens=handed_out(await plane.tokens.unaltered()),
        keys=keys_handed_out(plane.tokens.key_for),
        confirmed_at=plane.clock.now(),
    )
    file = LastKnownGood(tmp_path / FILE_NAME, "east", "a node's token")
    file.keep(known)
    await file.close()
    found = LastKnownGood(tmp_path / FILE_NAME, "east", "a node's token").load()
    assert isinstance(found, Knowledge)
    assert minted.token.encode() not in msgspec.json.encode(found)
    node = NodeTokens(found.tokens, found.keys, clock=plane.clock)
    principal = await node.verify(minted.token)
    assert principal is not None
    assert (principal.name, principal.task_id) == ("agent", "writing")
    await plane.clock.advance(60)
    assert await node.verify(minted.token) is None
