"""A registry with something in every table, and what anybody finds in it, wherever it is kept."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import asyncpg

from bascule.app.settings import Settings
from bascule.app.stores import open_stores
from bascule.audit.events import Act
from bascule.auth.postgres_token_store import open_shared_tokens
from bascule.auth.token_store import open_tokens
from bascule.control.postgres_secret_store import open_shared_secrets
from bascule.control.registry.assignments import Assigned, AssignmentStore
from bascule.control.registry.errors import NotAccepted
from bascule.control.registry.postgres_assignments import PostgresAssignments
from bascule.control.registry.postgres_store import PostgresStore
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Author, Retention, Store
from bascule.control.secrets import open_secrets
from bascule.db.postgres import Postgres
from bascule.db.sqlite import read_only
from bascule.model.assignment import Assignment
from bascule.model.secret_use import server_use
from bascule.policy.pairs import Pair
from tests.control.registry.build import server

ADMIN = Author("ada", "a word on why")
OPERATOR = Author("otto", trusted=False)
SECRET = "kept-by-nobody-else"
FAR = {
    "server_id": "far",
    "transport": "http",
    "http": {"url": "https://a.example", "auth_ref": "gh"},
}


async def unnoted(act: Act) -> None:
    """Write nothing down."""


async def fill(data: Path) -> str:
    """Fill a data directory; return a token that is good there."""
    settings = Settings(data_dir=str(data))
    async with open_stores(settings, None, lambda problems: None) as stores:
        service, tokens, secrets = stores.service, stores.tokens, stores.secrets
        for name in ("one", "two", "a-1", "a_1"):
            await service.put("server", name, server(name), ADMIN)
        await service.put("server", "one", server("one", display_name="Übung"), ADMIN)
        await service.delete("server", "two", ADMIN)
        await service.put("task", "review", {"task_id": "review", "mcp": {"enabled": True}}, ADMIN)
        with suppress(NotAccepted):
            await service.put("server", "far", FAR, OPERATOR)
        for node, labels in (("east", ("dmz",)), ("Über", None)):
            given = Assignment(tasks=("review",), labels=labels)
            await service.assignments.assign(node, given, ADMIN, at=1.5, note=None)
        minted = await tokens.mint("boss", "admin")
        await tokens.mint("eyes", "viewer", tasks=["review", "other"], ttl_seconds=3_600)
        await tokens.mint("door", "client", task_id="review", acts_for_users=True)
        assert secrets is not None
        record = service.snapshot().servers["one"]
        await secrets.set("gh", SECRET, by="ada", bind=[server_use(record)])
        await secrets.set("gone", SECRET, by="ada")
        await secrets.remove("gone", by="ada")
    store = await SqliteStore(data / "registry.db").open()
    await store.keep_pairs([Pair("gh", "https://b.example"), Pair("gh", "https://é.example")])
    await store.compact(Retention(changes=3))
    await store.close()
    return minted.token


async def registry_seen(store: Store) -> dict[str, Any]:
    """Return what a registry says of itself, but for which store it is."""
    head = await store.head()
    revisions = range(head.floor, head.revision + 1)
    return {
        "head": (head.revision, head.floor, head.mark),
        "views": [(await store.view(revision)).objects for revision in revisions],
        "marks": [await store.mark_at(revision) for revision in revisions],
        "changes": await store.changes(head.floor),
        "pairs": await store.kept_pairs(),
        "proposals": await store.proposals(),
    }


async def assigned(store: AssignmentStore) -> set[Assigned]:
    """Return what nodes are assigned."""
    return {*(await store.kept(0))[1]}


async def directory_seen(data: Path, token: str) -> dict[str, Any]:
    """Return what a data directory says of itself."""
    store = await SqliteStore(data / "registry.db").open()
    try:
        registry = await registry_seen(store)
        registry["assignments"] = await assigned(store.assignments)
    finally:
        await store.close()
    async with open_tokens(data) as tokens:
        who, records = await tokens.verify(token), await tokens.records()
    with closing(read_only(data / "ledger.db")) as ledger:
        events = ledger.execute("SELECT body FROM events ORDER BY number").fetchall()
    async with open_secrets(data, note=unnoted) as secrets:
        secret = await secrets.get("gh", by="owner")
    return {
        **registry,
        "tokens": records,
        "who": who,
        "secret": secret,
        "events": [body for (body,) in events],
    }


async def database_seen(dsn: str, keys: Path, token: str) -> dict[str, Any]:
    """Return what a PostgreSQL says of itself."""
    postgres = await Postgres(dsn).open()
    try:
        registry = await registry_seen(await PostgresStore(postgres).open())
        registry["assignments"] = await assigned(await PostgresAssignments(postgres).open())
        async with open_shared_tokens(postgres, keys, follow=False) as tokens:
            who, records = await tokens.verify(token), await tokens.records()
        async with open_shared_secrets(postgres, keys, follow=False, note=unnoted) as secrets:
            secret = await secrets.get("gh", by="owner")
    finally:
        await postgres.close()
    connection = await asyncpg.connect(dsn)
    try:
        events = await connection.fetch("SELECT body FROM ledger_events ORDER BY number")
    finally:
        await connection.close()
    return {
        **registry,
        "tokens": records,
        "who": who,
        "secret": secret,
        "events": [row[0] for row in events],
    }
