"""What ``bascule preflight registry`` finds of a real PostgreSQL, and leaves as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from bascule.app.settings_tables import StoreSettings
from bascule.auth.postgres_token_store import open_shared_tokens
from bascule.cli.database_checks import database as look
from bascule.cli.findings import Finding
from bascule.clock import SYSTEM_CLOCK
from bascule.control.postgres_secret_store import open_shared_secrets
from bascule.db.postgres import Postgres
from bascule.testing.clock import FakeClock
from tests.app.moving import unnoted
from tests.cli.served import command
from tests.postgres.databases import database
from tests.postgres.deaf_pooler import deaf_pooler

NOWHERE = "postgresql://bascule:letmein@127.0.0.1:1/none"
_THINGS = "SELECT relname FROM pg_class ORDER BY relname"


def said(_: str) -> None:
    """Nobody watches."""


async def found_of(store: StoreSettings, data: Path = Path(), **how: object) -> dict[str, Finding]:
    forms = how.get("forms", {"registry": 2})
    clock = how.get("clock", SYSTEM_CLOCK)
    return {one.check: one async for one in look(store, data, said, forms=forms, clock=clock)}  # pyright: ignore[reportArgumentType]


async def run(dsn: str, *queries: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        for query in queries[:-1]:
            await connection.execute(query)
        return [row[0] for row in await connection.fetch(queries[-1])]
    finally:
        await connection.close()


@asynccontextmanager
async def guest(dsn: str) -> AsyncGenerator[str, None]:
    """Make a user without any privilege; yield a DSN that leads in as that one."""
    name = f"guest_of_{dsn.partition('?')[0].rpartition('/')[2]}"
    await run(dsn, f"CREATE ROLE {name}", "SELECT 1")
    try:
        yield f"{dsn}{'&' if '?' in dsn else '?'}role={name}"
    finally:
        await run(dsn, f"DROP OWNED BY {name}", f"DROP ROLE {name}", "SELECT 1")


@pytest.mark.requirement("cli:preflight")
async def test_a_database_that_can_be_served_is_told_so_and_left_as_it_was(tmp_path: Path):
    async with database() as dsn:
        before = await run(dsn, _THINGS)
        words = ("preflight", "registry", "--data-dir", str(tmp_path), "--port", "0", "--json")
        done = await asyncio.to_thread(command, *words, BASCULE_DSN=dsn)
        assert await run(dsn, _THINGS) == before
    assert done.code == 0
    found = {one["check"]: one["verdict"] for one in done.json["checks"]}
    names = ("database TLS", "database clock", "form", "privileges", "listener")
    assert [found[name] for name in names] == ["ok"] * len(names)


@pytest.mark.requirement("cli:preflight")
async def test_a_database_that_cannot_be_reached_is_told_without_its_password(tmp_path: Path):
    words = ("preflight", "registry", "--data-dir", str(tmp_path), "--port", "0")
    done = await asyncio.to_thread(command, *words, BASCULE_DSN=NOWHERE)
    assert done.code == 1
    assert "127.0.0.1:1/none" in done.out
    assert "store.dsn" in done.out
    assert "letmein" not in done.out + done.err


async def test_a_database_that_is_not_there_is_told():
    async with database() as dsn:
        missing = dsn.replace("/bascule_", "/no_bascule_")
        found = await found_of(StoreSettings(dsn=missing))
    assert list(found) == ["database"]
    assert (found["database"].verdict, "createdb" in (found["database"].mend or "")) == (
        "failed",
        True,
    )


@pytest.mark.requirement("cli:preflight")
async def test_a_user_who_may_make_no_tables_is_told():
    async with database() as dsn, guest(dsn) as limited:
        found = (await found_of(StoreSettings(dsn=limited)))["privileges"]
    assert found.verdict == "failed"
    assert "no privilege to make tables" in found.words
    assert "GRANT CREATE" in (found.mend or "")


async def test_tables_of_another_user_are_told():
    async with database() as dsn, guest(dsn) as limited:
        await run(
            dsn,
            "CREATE TABLE bascule_forms (part text PRIMARY KEY, form integer NOT NULL)",
            "GRANT ALL ON SCHEMA public TO public",
            "GRANT SELECT ON bascule_forms TO public",
            "SELECT 1",
        )
        found = (await found_of(StoreSettings(dsn=limited)))["privileges"]
    assert found.verdict == "failed"
    assert "bascule_forms" in found.words


@pytest.mark.requirement("cli:preflight")
@pytest.mark.parametrize(
    ("form", "verdict", "words"),
    [
        (1, "ok", "brought to its newest form at the next start: registry"),
        (2, "ok", "registry 2"),
        (3, "ok", "registry 3"),
        (4, "failed", "written by a newer version of Bascule: registry 4"),
    ],
)
async def test_a_form_is_told_as_a_start_takes_it(form: int, verdict: str, words: str):
    async with database() as dsn:
        postgres = await Postgres(dsn).open()
        await postgres.migrate("registry", ["SELECT 1"] * form)
        await postgres.close()
        found = (await found_of(StoreSettings(dsn=dsn)))["form"]
    assert (found.verdict, found.words) == (verdict, words)


@pytest.mark.requirement("cli:preflight")
@pytest.mark.parametrize(("ahead", "verdict"), [(0.0, "ok"), (5.0, "warning"), (-90.0, "failed")])
async def test_clocks_that_are_apart_are_told(ahead: float, verdict: str):
    async with database() as dsn:
        clock = FakeClock(SYSTEM_CLOCK.now() + ahead)
        if ahead == 0.0:
            clock = SYSTEM_CLOCK
        found = (await found_of(StoreSettings(dsn=dsn), clock=clock))["database clock"]
    assert found.verdict == verdict


@pytest.mark.requirement("cli:preflight")
async def test_a_pooler_that_swallows_a_word_is_told_and_passed_by_the_listen_dsn(tmp_path: Path):
    async with database() as dsn, deaf_pooler(dsn, tmp_path) as pooled:
        swallowed = await found_of(StoreSettings(dsn=pooled))
        heard = await found_of(StoreSettings(dsn=pooled, listen_dsn=dsn))
    assert swallowed["listener"].verdict == "failed"
    assert "a pooler stands between" in swallowed["listener"].words
    assert "store.listen_dsn" in (swallowed["listener"].mend or "")
    assert swallowed["privileges"].verdict == heard["listener"].verdict == "ok"


async def test_a_pooler_that_takes_no_settings_is_passed_by_the_listen_dsn(tmp_path: Path):
    async with database() as dsn, deaf_pooler(dsn, tmp_path, strict=True) as pooled:
        refused = (await found_of(StoreSettings(dsn=pooled)))["database"]
        passed = (await found_of(StoreSettings(dsn=pooled, listen_dsn=dsn)))["listener"]
    assert (refused.verdict, passed.verdict) == ("failed", "ok")
    assert "store.listen_dsn" in (refused.mend or "")


async def test_a_listen_dsn_that_leads_nowhere_is_told():
    async with database() as dsn:
        found = (await found_of(StoreSettings(dsn=dsn, listen_dsn=NOWHERE)))["listener"]
    assert (found.verdict, "letmein" in found.words) == ("failed", False)
    assert "store.listen_dsn" in (found.mend or "")


@pytest.mark.requirement("cli:preflight")
async def test_a_key_that_is_not_that_of_the_other_replicas_is_told(tmp_path: Path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir(mode=0o700)
    async with database() as dsn:
        empty = await found_of(StoreSettings(dsn=dsn), tmp_path / "one")
        postgres = await Postgres(dsn).open()
        async with open_shared_tokens(postgres, tmp_path / "one", follow=False):
            pass
        await postgres.close()
        same = await found_of(StoreSettings(dsn=dsn), tmp_path / "one")
        none = await found_of(StoreSettings(dsn=dsn), tmp_path / "other")
        (tmp_path / "other" / "server.key").write_bytes(bytes(32))
        (tmp_path / "other" / "server.key").chmod(0o600)
        another = await found_of(StoreSettings(dsn=dsn), tmp_path / "other")
    assert empty["tokens' key"].words == "there are no tokens yet"
    assert same["tokens' key"].words == "it is that of the other replicas"
    assert (none["tokens' key"].verdict, another["tokens' key"].verdict) == ("failed", "failed")
    assert "is not that of the other replicas" in another["tokens' key"].words


@pytest.mark.requirement("cli:preflight")
async def test_a_key_of_the_secrets_that_a_start_would_refuse_is_told(tmp_path: Path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir(mode=0o700)

    async def verdicts() -> list[str]:
        found = [await found_of(StoreSettings(dsn=dsn), tmp_path / one) for one in ("one", "other")]
        return [one["secrets' key"].verdict for one in found]

    async with database() as dsn:
        postgres = await Postgres(dsn).open()
        empty = await verdicts()
        async with open_shared_secrets(postgres, tmp_path / "one", note=unnoted):
            beside_another = await verdicts()
        alone = await verdicts()
        here = tmp_path / "one"
        async with open_shared_secrets(postgres, here, follow=False, note=unnoted) as secrets:
            await secrets.set("token", "an example", by="alice")
        used = await verdicts()
        await postgres.close()
    assert empty == alone == ["ok", "ok"]
    assert beside_another == used == ["ok", "failed"]


@pytest.mark.requirement("cli:preflight")
async def test_a_user_who_cannot_tell_a_failover_is_warned():
    async with database() as dsn, guest(dsn) as limited:
        await run(
            dsn,
            "GRANT ALL ON SCHEMA public TO public",
            "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public",
            "SELECT 1",
        )
        found = (await found_of(StoreSettings(dsn=limited)))["privileges"]
    assert (found.verdict, "pg_control_system()" in found.words) == ("warning", True)
