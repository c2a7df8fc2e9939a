"""The registry: what an upsert costs with and without fsync, and how soon a watcher has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.control.registry.store import Author, Store
from bascule.db.sqlite import Synchronous
from bench.table import Row, at_most
from tests.control.registry.memory_store import MemoryStore

NAME = "registry"
SERVERS = 200
WRITES = 500
BY = Author("bench")


def run() -> list[Row]:
    """Write to a registry of 200 servers, one after another."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    durable = await _upserts("FULL")
    memory = await _with(MemoryStore(), _upsert_times)
    return [
        Row(f"upsert among {SERVERS} servers, durable (fsync), p50", durable, "ms"),
        Row("the same without fsync, p50", await _upserts("OFF"), "ms"),
        Row("the same in memory, p50", memory, "ms"),
        at_most(
            "from the upsert to a watcher's hands, fsync included, p50", await _seen(), "ms", 50
        ),
        Row(f"list {SERVERS} servers from the store, p50", await _listed(), "ms"),
    ]


def _server(number: int, name: str = "") -> dict[str, Any]:
    return {
        "server_id": f"server{number}",
        "transport": "stdio",
        "display_name": name,
        "stdio": {"command": "true", "env": {"TOKEN": "secret://token"}},
        "allowed_tools": ["read_*", "search_*"],
    }


async def _upserts(synchronous: Synchronous) -> float:
    return await _on_disk(synchronous, _upsert_times)


async def _seen() -> float:
    return await _on_disk("FULL", _delivery_times)


async def _listed() -> float:
    return await _on_disk("FULL", _list_times)


Measure = Callable[[RegistryService, Store], Awaitable[list[float]]]


async def _on_disk(synchronous: Synchronous, measure: Measure) -> float:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "registry.db"
        return await _with(await SqliteStore(path, synchronous=synchronous).open(), measure)


async def _with(store: Store, measure: Measure) -> float:
    """Return the median in milliseconds."""
    async with open_registry(store) as service:
        many = [("server", _server(number)) for number in range(SERVERS)]
        await service.import_records([("server", data) for _, data in many], "upsert", BY)
        return median(await measure(service, store)) * 1e3


async def _upsert_times(service: RegistryService, store: Store) -> list[float]:
    del store
    return [
        await _timed(
            service.put("server", f"server{n % SERVERS}", _server(n % SERVERS, f"write {n}"), BY)
        )
        for n in range(WRITES)
    ]


async def _delivery_times(service: RegistryService, store: Store) -> list[float]:
    del store
    events = await service.watch(service.view.revision)
    times: list[float] = []
    for n in range(WRITES):
        began = SYSTEM_CLOCK.monotonic()
        async with asyncio.TaskGroup() as both:
            both.create_task(service.put("server", "server0", _server(0, f"write {n}"), BY))
            both.create_task(anext(events))  # pyright: ignore[reportArgumentType] - it is one
        times.append(SYSTEM_CLOCK.monotonic() - began)
    return times


async def _list_times(service: RegistryService, store: Store) -> list[float]:
    del service
    return [await _timed(store.view()) for _ in range(WRITES)]


async def _timed(work: Awaitable[object]) -> float:
    began = SYSTEM_CLOCK.monotonic()
    await work
    return SYSTEM_CLOCK.monotonic() - began
