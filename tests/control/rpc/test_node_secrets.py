"""Secrets over gRPC: who is given which, and what nodes are told when one changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bascule.audit.ledger import MemoryLedger
from bascule.control.envelope import new_key
from bascule.control.rpc import secrets as rpc_secrets
from bascule.control.secrets import Secrets
from bascule.model.assignment import ALL, Assignment
from bascule.model.role import Role
from bascule.model.secret_use import SecretUse
from bascule.wire.pb import errors_pb2, node_pb2
from tests.control.keeping_secrets import BY, VALUE, Shared, acts, opened
from tests.control.registry.build import BY as WRITER
from tests.control.registry.build import server
from tests.control.rpc.counter import RpcCounter, open_counter
from tests.control.rpc.test_nodes import said
from tests.postgres.databases import database

STATUS = grpc.StatusCode
KEY = new_key()


class Vault:
    """A registry with a server, and secrets for it."""

    def __init__(self, counter: RpcCounter, secrets: Secrets, ledger: MemoryLedger) -> None:
        self.counter = counter
        self.secrets = secrets
        self.ledger = ledger

    async def put(self, command: str = "x") -> SecretUse:
        """Write the server's record; return it as a user of secrets."""
        record = server("fs", stdio={"command": command, "env": {"T": "secret://token"}})
        await self.counter.service.put("server", "fs", record, WRITER)
        found = self.secrets.use("server", "fs")
        assert found is not None
        return found

    async def resolve(self, use: SecretUse, role: Role = "node", name: str = "token") -> str:
        return (await self.counter.ask("ResolveSecret", role, name=name, **fields(use))).value

    async def refused(self, use: SecretUse, name: str = "token", **other: str) -> Any:
        asked = {"name": name, **fields(use), **other}
        return await self.counter.refusal("ResolveSecret", "node", **asked)


def fields(use: SecretUse) -> dict[str, str]:
    return {"kind": use.kind, "id": use.id, "digest": use.digest}


@asynccontextmanager
async def vault_of(secrets: Secrets, ledger: MemoryLedger) -> AsyncGenerator[Vault, None]:
    async with open_counter(secrets=secrets) as counter:
        yield Vault(counter, secrets, ledger)


@pytest.fixture
async def vault(tmp_path: Path) -> AsyncGenerator[Vault, None]:
    ledger = MemoryLedger()
    async with opened(tmp_path, ledger=ledger) as secrets, vault_of(secrets, ledger) as made:
        yield made


# --- resolving


@pytest.mark.requirement("registry:grpc:secrets")
async def test_a_node_is_given_a_secret_that_is_bound_and_that_is_noted(vault: Vault):
    use = await vault.put()
    await vault.secrets.set("token", VALUE, by=BY, bind=[use])
    assert await vault.resolve(use) == VALUE
    assert acts(vault.ledger)[-1] == ("read", "token", "node", None, "fs")
    assert VALUE in vault.secrets.known_values


@pytest.mark.requirement("registry:grpc:secrets")
async def test_a_node_is_told_why_it_is_not_given_a_secret(vault: Vault):
    use = await vault.put()
    missing = await vault.refused(use)
    assert (missing.status, missing.words) == (
        STATUS.NOT_FOUND,
        "there is no secret named 'token'",
    )
    await vault.secrets.set("token", VALUE, by=BY)
    before = acts(vault.ledger)
    unbound = await vault.refused(use)
    assert unbound.status is STATUS.FAILED_PRECONDITION
    assert "bascule secrets bind token --server fs" in unbound.words
    for field, value in (("kind", "task"), ("name", "no name")):
        wrong = await vault.refused(use, **{field: value})
        assert wrong.status is STATUS.INVALID_ARGUMENT
        assert wrong.read(errors_pb2.Refusal).field == field
    elsewhere = await vault.refused(use, id="other")
    assert elsewhere.status is STATUS.ABORTED
    assert "the record of the server 'other' is not in the registry" in elsewhere.words
    assert acts(vault.ledger) == before


@pytest.mark.requirement("registry:grpc:secrets-record")
async def test_a_binding_is_judged_by_the_record_of_the_registry_whatever_a_node_says(
    vault: Vault,
):
    use = await vault.put()
    await vault.secrets.set("token", VALUE, by=BY, bind=[use])
    changed = await vault.put(command="other")
    assert changed.digest != use.digest
    behind = await vault.refused(use)
    assert behind.status is STATUS.ABORTED
    assert "is another there than at this node" in behind.words
    assert (await vault.refused(changed)).status is STATUS.FAILED_PRECONDITION
    await vault.secrets.bind("token", changed, by=BY)
    assert await vault.resolve(changed) == VALUE


@pytest.mark.parametrize("role", ["admin", "operator", "approver", "viewer", "client"])
async def test_nobody_but_a_node_is_given_a_secret(vault: Vault, role: Role):
    use = await vault.put()
    await vault.secrets.set("token", VALUE, by=BY, bind=[use])
    refused = await vault.counter.refusal("ResolveSecret", role, name="token", **fields(use))
    assert refused.status is STATUS.PERMISSION_DENIED
    assert VALUE not in refused.words


@pytest.mark.requirement("registry:grpc:secrets")
async def test_a_node_is_given_nothing_for_what_it_does_not_serve(vault: Vault):
    use = await vault.put()
    await vault.secrets.set("token", VALUE, by=BY, bind=[use])
    assignments, at = vault.counter.service.assignments, vault.counter.clock.now()
    elsewhere = Assignment(labels=("elsewhere",))
    await assignments.assign("node", elsewhere, WRITER, at=at, note=None)
    refused = await vault.refused(use)
    assert refused.status is STATUS.PERMISSION_DENIED
    assert "is not among those that this node serves" in refused.words
    await assignments.assign("node", ALL, WRITER, at=at, note=None)
    assert await vault.resolve(use) == VALUE


# --- telling


@pytest.mark.requirement("registry:grpc:secrets-told")
async def test_a_stream_says_which_secrets_have_changed(vault: Vault):
    use = await vault.put()
    stream = vault.counter.follow()
    _, _, begun, _ = await said(stream, "welcome", "tokens", "secrets", "snapshot")
    assert [*begun.names] == ["*"]
    await vault.secrets.set("token", VALUE, by=BY)
    told, _ = await said(stream, "secrets", "bookmark")
    assert [*told.names] == ["token"]
    await vault.secrets.bind("token", use, by=BY)
    later, _ = await said(stream, "secrets", "bookmark")
    assert [*later.names] == ["token"]
    assert later.version not in {begun.version, told.version}
    assert VALUE.encode() not in later.SerializeToString()


@pytest.mark.requirement("registry:nodes:assigned-part")
async def test_a_node_hears_no_names_of_secrets_that_its_records_do_not_say(vault: Vault):
    counter = vault.counter
    for name, secret, tag in (("fs", "token", "dmz"), ("desk", "diary", "office")):
        stdio = {"command": "x", "env": {"T": f"secret://{secret}"}}
        record = server(name, stdio=stdio, tags=[tag])
        await counter.service.put("server", name, record, WRITER)
    mcp = {"enabled": True, "default_server_ids": ["fs", "desk"]}
    await counter.service.put("task", "t", {"task_id": "t", "mcp": mcp}, WRITER)
    at, part = counter.clock.now(), Assignment(labels=("dmz",))
    await counter.service.assignments.assign("node", part, WRITER, at=at, note=None)
    stream = counter.follow()
    await said(stream, "welcome", "tokens", "secrets", "snapshot")
    for secret, heard in (("diary", []), ("token", ["token"])):
        await vault.secrets.set(secret, VALUE, by=BY)
        told, _ = await said(stream, "secrets", "bookmark")
        assert [*told.names] == heard
        assert told.version == vault.secrets.version


@pytest.mark.requirement("registry:grpc:secrets-told")
async def test_a_stream_begins_with_what_changed_since_the_version_at_hand(vault: Vault):
    await vault.put()
    await vault.secrets.set("token", VALUE, by=BY)
    first = vault.counter.follow()
    _, tokens, begun, _ = await said(first, "welcome", "tokens", "secrets", "snapshot")
    known = {"tokens_version": tokens.version, "secrets_version": begun.version}
    await said(vault.counter.follow(**known), "welcome", "snapshot")
    await vault.secrets.set("token", "another-value", by=BY)
    _, changed, _ = await said(vault.counter.follow(**known), "welcome", "secrets", "snapshot")
    assert [*changed.names] == ["*"]


def names(messages: tuple[bytes, ...]) -> list[str]:
    told = map(node_pb2.FollowResponse.FromString, messages)
    return [name for one in told for name in one.secrets.names]


async def test_many_changes_at_once_are_told_as_all(vault: Vault, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc_secrets, "_TOLD", 2)
    rpc = rpc_secrets.SecretRpc(vault.secrets, lambda: None)
    for name in ("a", "b", "c"):
        await vault.secrets.set(name, VALUE, by=BY)
    assert [names(rpc.after(number, None)) for number in (3, 1, 0)] == [[], ["b", "c"], ["*"]]
    rpc.close()


@pytest.mark.requirement("registry:grpc:secrets-told")
async def test_what_one_replica_changes_is_told_at_another(tmp_path: Path):
    async with database() as dsn:
        shared = Shared(dsn)
        async with (
            shared.opened(tmp_path / "a", key=KEY) as one,
            shared.opened(tmp_path / "b", key=KEY) as other,
            vault_of(other, MemoryLedger()) as vault,
        ):
            following = asyncio.create_task(other.follow())
            stream = vault.counter.follow()
            await said(stream, "welcome", "tokens", "secrets", "snapshot")
            await one.set("token", VALUE, by=BY)
            told, _ = await said(stream, "secrets", "bookmark")
            assert [*told.names] == ["token"]
            assert told.version == one.version == other.version
            following.cancel()
            await asyncio.wait([following])
