"""Secrets of several replicas on one PostgreSQL: one key, changes for all, and open while away."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bascule.audit.ledger import MemoryLedger
from bascule.control.envelope import new_key
from bascule.control.postgres_secret_store import open_shared_secrets
from bascule.control.secret_keys import KEY_NAME
from bascule.control.secrets import Secrets
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import KeyUnusable
from bascule.errors import SecretUnbound
from bascule.model.secret_use import server_use
from tests.auth.replicas import reached
from tests.control.keeping_secrets import BY, USE, VALUE, Shared, acts, server
from tests.postgres.cluster import Cluster
from tests.postgres.databases import database
from tests.scale import scaled
from tests.waits import Heard, until

KEY = new_key()


@pytest.fixture
async def shared() -> AsyncGenerator[Shared, None]:
    async with database() as dsn:
        yield Shared(dsn)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Cluster, None]:
    one = await asyncio.to_thread(lambda: Cluster(tmp_path / "pg").make().start())
    try:
        yield one
    finally:
        await asyncio.to_thread(one.kill)


@pytest.mark.requirement("security:secrets:replicas")
async def test_a_secret_of_one_replica_is_given_at_every_other_at_once(
    shared: Shared, tmp_path: Path
):
    async with (
        shared.opened(tmp_path / "a", key=KEY) as one,
        shared.opened(tmp_path / "b", key=KEY) as other,
    ):
        await one.set("token", VALUE, by=BY, bind=[USE])
        assert await other.secret("token", USE) == VALUE
        later = server_use(server("plain"))
        await one.bind("token", later, by=BY)
        assert await other.secret("token", later) == VALUE
        assert await other.listing() == await one.listing()


@pytest.mark.requirement("security:secrets:replicas")
@pytest.mark.parametrize("hears", [True, False], ids=["by the bell", "by looking"])
async def test_what_one_replica_changes_every_other_follows(
    shared: Shared, tmp_path: Path, hears: bool
):
    heard: Heard[str] = Heard()
    async with shared.opened(tmp_path / "a", key=KEY) as one:
        await one.set("token", VALUE, by=BY, bind=[USE])
        listen = shared.dsn if hears else f"{shared.dsn}_that_is_not_there"
        async with (
            reached(shared.dsn, listen_dsn=listen) as postgres,
            open_shared_secrets(
                postgres, tmp_path / "b", key=KEY, note=MemoryLedger().note
            ) as other,
        ):
            other.subscribe(heard.hear)
            following = asyncio.create_task(other.follow())
            try:
                await one.set("token", "another-value", by=BY)
                await heard.reach(1)
                assert await other.secret("token", USE) == "another-value"
                await one.unbind("token", "server", "github", by=BY)
                await heard.reach(2)
                with pytest.raises(SecretUnbound):
                    await other.secret("token", USE)
            finally:
                following.cancel()
                await asyncio.wait([following])
    assert set(heard) == {"token"}


# --- the key


@pytest.mark.requirement("security:secrets:replica-key")
@pytest.mark.parametrize("filled", [True, False], ids=["with a secret", "without"])
async def test_a_replica_with_another_outer_key_or_none_does_not_start(
    shared: Shared, tmp_path: Path, filled: bool
):
    async with shared.opened(tmp_path / "a") as one:
        if filled:
            await one.set("token", VALUE, by=BY, bind=[USE])
        sealed = one.sealer().seal("turn", b"waits")
        for name, key in (("other", new_key()), ("none", None)):
            with pytest.raises(KeyUnusable, match=r"BASCULE_SECRETS_KEY.*DELETE FROM"):
                async with shared.opened(tmp_path / name, key=key):
                    pass
            assert not (tmp_path / name / KEY_NAME).exists(), "and none is made that would not do"
        (tmp_path / "b").mkdir()
        shutil.copy(tmp_path / "a" / KEY_NAME, tmp_path / "b" / KEY_NAME)
        async with shared.opened(tmp_path / "b") as other:
            assert other.sealer().unseal("turn", sealed) == b"waits"
            if filled:
                assert await other.secret("token", USE) == VALUE


async def test_of_replicas_that_begin_with_keys_of_their_own_one_goes_on(
    shared: Shared, tmp_path: Path
):
    begun = asyncio.Barrier(4)

    async def begin(name: str) -> str | None:
        try:
            async with shared.opened(tmp_path / name, key=new_key()):
                await begun.wait()
                return name
        except KeyUnusable:
            await begun.wait()
            return None

    assert len([name for name in await asyncio.gather(*map(begin, "abcd")) if name]) == 1


@pytest.mark.requirement("security:secrets:replica-key")
async def test_the_key_is_not_changed_while_other_replicas_run(shared: Shared, tmp_path: Path):
    ledger = MemoryLedger()
    command = Shared(shared.dsn, follow=False)
    async with shared.opened(tmp_path / "a") as one:
        await one.set("token", VALUE, by=BY, bind=[USE])
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        async with shared.opened(tmp_path / "b", ledger=ledger) as other:
            with pytest.raises(KeyUnusable, match=r"other replicas run \(1\).*stop them"):
                await other.rekey(by=BY)
        async with command.opened(tmp_path / "a", ledger=ledger) as tool:
            with pytest.raises(KeyUnusable, match="stop them"):
                await tool.rekey(by=BY)
        assert acts(ledger) == []
        await one.rekey(by=BY)
        assert await one.secret("token", USE) == VALUE
    async with command.opened(tmp_path / "a") as tool:
        await tool.rekey(by=BY)
        assert await tool.secret("token", USE) == VALUE
    with pytest.raises(KeyUnusable, match="is not the key"):
        async with shared.opened(tmp_path / "b"):
            pass


# --- a database that is away, killed, or edited


@pytest.mark.requirement("security:secrets:database-away")
async def test_secrets_are_given_while_the_database_is_away(cluster: Cluster, tmp_path: Path):
    shared = Shared(cluster.dsn())
    async with shared.opened(tmp_path / "a", key=KEY) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
        await secrets.set("never-read", VALUE, by=BY, bind=[USE])
        await asyncio.to_thread(cluster.kill)
        assert await secrets.secret("token", USE) == VALUE
        assert await secrets.secret("never-read", USE) == VALUE
        assert len(await secrets.listing()) == 2
        with pytest.raises(KeyError):
            await secrets.secret("none", USE)
        for work in (
            secrets.set("token", "another-value", by=BY),
            secrets.remove("token", by=BY),
            secrets.rekey(new_key(), by=BY),
        ):
            with pytest.raises(StoreUnavailable):
                await work
        await asyncio.to_thread(cluster.start)
        assert await until(lambda: _set(secrets, "another-value"))
        assert await secrets.secret("token", USE) == "another-value"


async def _set(secrets: Secrets, value: str) -> int:
    try:
        return await secrets.set("token", value, by=BY)
    except StoreUnavailable:
        return 0


@pytest.mark.timeout(300)
@pytest.mark.requirement("security:secrets:database-away")
async def test_a_database_killed_under_writes_loses_no_version_and_makes_none_twice(
    cluster: Cluster, tmp_path: Path
):
    shared = Shared(cluster.dsn())
    async with (
        shared.opened(tmp_path / "a", key=KEY) as one,
        shared.opened(tmp_path / "b", key=KEY) as other,
    ):
        versions: list[int] = []
        for number in range(scaled(50)):
            stop = asyncio.Event()
            writing = [
                asyncio.create_task(_write_until(stop, secrets, f"{number}-{at}", versions))
                for at, secrets in enumerate((one, other))
            ]
            before = len(versions)
            await until(lambda before=before: len(versions) > before + 2)
            await asyncio.to_thread(cluster.kill)
            await asyncio.to_thread(cluster.start)
            again = len(versions)
            await until(lambda again=again: len(versions) > again + 2)
            stop.set()
            await asyncio.gather(*writing)
        assert len(versions) == len(set(versions)), "no number was given twice"
        last = await one.shown("token")
        assert last.version >= max(versions), "nothing acknowledged was lost"
        assert await other.get("token", by=BY) == await one.get("token", by=BY)


async def _write_until(
    stop: asyncio.Event, secrets: Secrets, value: str, versions: list[int]
) -> None:
    while not stop.is_set():
        version = await _set(secrets, value)
        if version:
            versions.append(version)


async def test_the_database_has_no_value_and_no_key(shared: Shared, tmp_path: Path):
    async with shared.opened(tmp_path / "a", key=KEY) as secrets:
        await secrets.set("token", VALUE, by=BY, bind=[USE])
    tables = ("bascule_secrets_head", "bascule_secrets", "bascule_secret_bindings")
    async with reached(shared.dsn) as postgres:
        kept = [await postgres.fetch(f"SELECT t::text FROM {table} AS t") for table in tables]  # noqa: S608 - constants
    whole = "".join(row[0] for rows in kept for row in rows)
    assert KEY.id in whole
    for hidden in (VALUE, VALUE.encode().hex(), KEY.raw.hex()):
        assert hidden not in whole
