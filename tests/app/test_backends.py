"""Backends of the settings become records that say where they come from."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from bascule.app.backends import OWNER, backends_trouble, publish_backends
from bascule.control.registry.errors import OwnedByFile
from bascule.control.registry.plan import Draft
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author, Write
from bascule.model.backend import BackendRecord
from tests.control.registry.memory_store import MemoryStore

BY = Author("ada")


def backend(name: str, url: str = "https://one.example/v1") -> BackendRecord:
    return BackendRecord(name=name, base_url=url)


@asynccontextmanager
async def registry() -> AsyncGenerator[RegistryService]:
    async with open_registry(MemoryStore()) as service:
        yield service


def shown(service: RegistryService) -> dict[str, str | None]:
    return {one.id: one.owner for one in service.view.of_kind("backend")}


async def test_they_are_written_as_one_revision_and_only_when_they_change():
    async with registry() as service:
        first = await publish_backends(service, [backend("a"), backend("b")])
        assert shown(service) == {"a": OWNER, "b": OWNER}
        again = await publish_backends(service, [backend("a"), backend("b")])
        assert (again.revision, again.change) == (first.revision, None)
        await publish_backends(service, [backend("a", "https://two.example/v1")])
        assert shown(service) == {"a": OWNER}
        assert service.snapshot().backends["a"].base_url == "https://two.example/v1"


async def test_they_cannot_be_edited_elsewhere_until_they_are_adopted():
    async with registry() as service:
        await publish_backends(service, [backend("a")])
        with pytest.raises(OwnedByFile, match="settings"):
            await service.delete("backend", "a", BY)
        await service.adopt("backend", "a", BY)
        written = await publish_backends(service, [backend("a", "https://two.example/v1")])
        assert written.problems == (
            "backend 'a' is edited in the registry; the settings' word does not count",
        )
        assert service.snapshot().backends["a"].base_url == "https://one.example/v1"
        await publish_backends(service, [])
        assert shown(service) == {"a": None}


async def test_they_stand_above_what_a_file_defines_and_leave_the_rest_alone():
    async with registry() as service:
        filed = [
            Write(kind="backend", id=name, record=backend(name), owner="/etc/x.toml")
            for name in ("a", "b")
        ]
        await service.transact(lambda _: Draft(tuple(filed)), BY, as_owner=True)
        await publish_backends(service, [backend("a", "https://two.example/v1")])
        assert shown(service) == {"a": OWNER, "b": "/etc/x.toml"}


@pytest.mark.requirement("loading:replicas:backends")
@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        ([backend("a")], None),
        ([], "(a)"),
        ([backend("a"), backend("b")], "(b)"),
        ([backend("a", "https://two.example/v1")], "(a)"),
        ([backend("b"), backend("c")], "(a, b, c)"),
    ],
    ids=["equal", "fewer", "more", "changed", "others"],
)
async def test_a_replica_says_whose_backends_were_replaced_by_another(
    theirs: list[BackendRecord], named: str | None
):
    async with registry() as service:
        for backends in ([backend("a")], theirs):
            await publish_backends(service, backends)
            assert backends_trouble(service.view, backends, "b") is None
        trouble = backends_trouble(service.view, [backend("a")], "one")
        assert (trouble is None) == (named is None)
        assert trouble is None or (f"{named}:" in trouble and "'one'" in trouble)


async def test_what_people_made_of_a_backend_is_no_trouble_of_replicas():
    async with registry() as service:
        await publish_backends(service, [backend("a")])
        await service.adopt("backend", "a", BY)
        changed = [backend("a", "https://two.example/v1")]
        await publish_backends(service, changed)
        assert backends_trouble(service.view, changed, "one") is None
