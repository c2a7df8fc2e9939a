"""The service: one validator, one set of rules, whoever writes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bascule.control.registry.errors import (
    AlreadyExists,
    Compacted,
    Conflict,
    FutureRevision,
    NotFound,
    OwnedByFile,
    StoreChanged,
)
from bascule.control.registry.plan import Edit, records_of
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Author, Store
from bascule.db.errors import StoreUnavailable
from bascule.errors import InvalidRecord
from bascule.model.kinds import CLASSES, KINDS, Kind
from bascule.model.snapshot import Position, Snapshot
from bascule.wire.faults import face
from bascule.wire.records import dump, encode
from tests.control.registry.build import BY, PLAIN, changed, server, write
from tests.wire.full_records import FULL


@pytest.mark.requirement("registry:register", "registry:update", "registry:delete")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_is_registered_read_listed_updated_and_deleted(
    service: RegistryService, kind: Kind
):
    key, plain = PLAIN[kind]
    created = await service.create(kind, plain, BY)
    stored = await service.get(kind, key)
    assert created.revision == stored.revision == 1
    assert created.stored(kind, key) == stored
    assert (service.view.revision, service.view.of_kind(kind)) == (1, (stored,))
    replaced = await service.put(kind, key, {**encode(stored.record), **CHANGED[kind]}, BY)
    assert replaced.revision == 2
    assert (await service.get(kind, key)).record != stored.record
    deleted = await service.delete(kind, key, BY, expected_revision=2)
    assert deleted.change is not None
    assert deleted.change.deletes(kind) == (key,)
    assert service.view.of_kind(kind) == ()


CHANGED: dict[Kind, dict[str, Any]] = {
    "server": {"enabled": False},
    "task": {"name": "Review"},
    "profile": {"read_only": True},
    "platform": {"default_approval": "always"},
    "backend": {"enabled": False},
    "user": {"read_only": True},
}


async def test_the_platform_record_is_there_before_it_is_written(service: RegistryService):
    stored = await service.get("platform", "platform")
    assert (stored.revision, stored.owner) == (0, None)
    await service.put("platform", "platform", {"tool_denylist": ["x"]}, BY, expected_revision=0)
    assert service.snapshot().platform.tool_denylist == ("x",)


async def test_creating_what_exists_is_refused_with_its_revision(service: RegistryService):
    await service.create("server", server("fs"), BY)
    with pytest.raises(AlreadyExists) as raised:
        await service.create("server", server("fs", enabled=False), BY)
    assert raised.value.details["current_revision"] == 1
    assert service.view.revision == 1


@pytest.mark.requirement("registry:delete:missing")
async def test_deleting_what_does_not_exist_is_not_found_and_keeps_the_revision(
    service: RegistryService,
):
    for kind in KINDS:
        with pytest.raises(NotFound):
            await service.delete(kind, PLAIN[kind][0], BY)
    with pytest.raises(NotFound):
        await service.patch("server", "fs", {}, BY)
    with pytest.raises(NotFound):
        await service.get("server", "fs")
    with pytest.raises(Conflict):
        await service.delete("server", "fs", BY, expected_revision=3)
    assert service.view.revision == 0


@pytest.mark.requirement("registry:expected-revision")
async def test_of_two_edits_of_one_revision_only_the_first_counts(service: RegistryService):
    await service.put("server", "fs", server("fs"), BY)
    await service.patch("server", "fs", {"tags": ["a"]}, BY, expected_revision=1)
    for edit in (
        service.patch("server", "fs", {"tags": ["b"]}, BY, expected_revision=1),
        service.put("server", "fs", server("fs"), BY, expected_revision=1),
        service.delete("server", "fs", BY, expected_revision=1),
        service.put("server", "fs", server("fs"), BY, expected_revision=0),
    ):
        with pytest.raises(Conflict) as raised:
            await edit
        assert raised.value.current == 2
    assert service.snapshot().servers["fs"].tags == ("a",)


@pytest.mark.requirement("registry:list:snapshot")
async def test_a_list_is_of_one_snapshot_whatever_is_written_meanwhile(service: RegistryService):
    before = service.view
    await service.import_records([("server", server(f"s{n}")) for n in range(9)], "upsert", BY)
    after = service.view
    assert (before.revision, before.of_kind("server")) == (0, ())
    assert [stored.id for stored in after.of_kind("server")] == [f"s{n}" for n in range(9)]
    assert {stored.revision for stored in after.of_kind("server")} == {after.revision} == {1}
    assert service.snapshot().revision == 1
    assert service.snapshot() is service.snapshot()


@pytest.mark.requirement("registry:kinds")
@pytest.mark.parametrize("name", FULL)
async def test_every_field_of_every_kind_survives_the_store(service: RegistryService, name: str):
    cls, plain = FULL[name]
    kind = KIND_OF[cls]
    written = await service.create(kind, plain, BY)
    [stored] = service.view.of_kind(kind)
    assert json.loads(dump(stored.record, "json")) == plain
    assert (await service.snapshot_at(written.revision)).items(kind)[stored.id] == stored.record


KIND_OF: dict[type[Any], Kind] = {cls: kind for kind, cls in CLASSES.items()}
BAD: list[tuple[Kind, str, dict[str, Any], str]] = [
    ("server", "fs", server("FS!"), "server_id"),
    ("server", "fs", server("other"), "server_id: must be 'fs'"),
    ("server", "fs", {**server("fs"), "transport": "carrier-pigeon"}, "transport"),
    ("server", "fs", {**server("fs"), "budgets": {"max_concurrency": 0}}, "budgets.max_concur"),
    ("server", "fs", server("fs", allowed_tools=["a**b/c/d"]), "allowed_tools[0]"),
    ("task", "t", {"config": {"mcp.tool_allowlist": "[1"}}, "mcp.tool_allowlist"),
    ("task", "a b", {}, "task_id"),
    ("profile", "p", {"environments": []}, "environments"),
    ("platform", "platform", {"ceilings": {"tool_timeout_ms": -1}}, "ceilings.tool_timeout_ms"),
    ("platform", "another", {}, "only platform record"),
    ("backend", "b", {"base_url": "ftp://x"}, "base_url"),
]


@pytest.mark.requirement("registry:validate-on-write", "registry:invalid-never-stored")
@pytest.mark.parametrize(("kind", "key", "data", "path"), BAD)
async def test_a_record_that_does_not_validate_changes_nothing_by_any_way_in(
    service: RegistryService, kind: Kind, key: str, data: dict[str, Any], path: str
):
    ways = [
        service.put(kind, key, data, BY),
        service.apply(
            [
                Edit(kind="server", key="good", data=server("good")),
                Edit(kind=kind, key=key, data=data),
            ],
            BY,
        ),
    ]
    for way in ways:
        with pytest.raises(InvalidRecord) as raised:
            await way
        assert any(path in problem for problem in raised.value.problems)
    assert (service.view.revision, service.view.objects) == (0, {})


@pytest.mark.requirement("registry:validate-on-write")
async def test_all_problems_of_a_record_are_said_at_once(service: RegistryService):
    data = server("fs", enabled="yes", tags=["no blanks allowed"], prewarm=3)
    with pytest.raises(InvalidRecord) as raised:
        await service.create("server", data, BY)
    assert [p.partition(":")[0] for p in raised.value.problems] == ["enabled", "tags[0]", "prewarm"]


async def test_strict_writes_refuse_what_others_are_warned_about(service: RegistryService):
    odd = server("fs", http={"url": "https://example.org/mcp"})
    with pytest.raises(InvalidRecord, match="http"):
        await service.put("server", "fs", odd, BY, strict=True)
    [said] = (await service.put("server", "fs", odd, BY)).warnings
    assert said.startswith("http: is not used")


@pytest.mark.parametrize("odd", [[], "text", None, 7])
async def test_what_is_not_a_table_is_refused(service: RegistryService, odd: Any):
    with pytest.raises(InvalidRecord):
        await service.import_records([("server", odd)], "upsert", BY)
    assert service.view.revision == 0


async def test_a_namespace_belongs_to_one_server(service: RegistryService):
    await service.put("server", "b", server("b", tool_namespace="mcp.shared"), BY)
    with pytest.raises(InvalidRecord) as raised:
        await service.put("server", "a", server("a", tool_namespace="MCP.shared"), BY)
    assert raised.value.problems == (
        "tool_namespace: 'MCP.shared' is already the namespace of server 'b'",
    )
    swap = [
        Edit(kind="server", key="b", data={"tool_namespace": "mcp.other"}, op="merge"),
        Edit(kind="server", key="a", data=server("a", tool_namespace="mcp.shared")),
    ]
    assert (await service.apply(swap, BY)).revision == 2


async def test_two_who_claim_a_namespace_at_once_do_not_both_get_it(service: RegistryService):
    claims = [
        service.put("server", f"s{n}", server(f"s{n}", tool_namespace="mcp.x"), BY)
        for n in range(5)
    ]
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(result, InvalidRecord) for result in results) == 4
    assert service.view.revision == 1


@pytest.mark.requirement("registry:revision:one-write")
async def test_many_edits_are_one_revision_all_or_none(service: RegistryService):
    await service.put("server", "old", server("old"), BY)
    edits = [
        Edit(kind="server", key="new", data=server("new")),
        Edit(kind="server", key="old", op="delete"),
        Edit(kind="task", data={"task_id": "review"}),
    ]
    written = await service.apply(edits, Author("ada", "spring clean"))
    assert written.revision == 2
    assert changed(written.diff()) == "+ server new\n- server old\n+ task review"
    with pytest.raises(NotFound):
        await service.apply([Edit(kind="server", key="x", data=server("x")), edits[1]], BY)
    with pytest.raises(InvalidRecord, match="twice"):
        await service.apply([edits[0], edits[0]], BY)
    assert service.view.revision == 2


async def test_a_patch_drops_nothing_that_it_does_not_name(service: RegistryService):
    _, plain = FULL["remote"]
    await service.create("server", plain, BY)
    await service.patch("server", "fs", {"budgets": {"max_concurrency": 2}}, BY)
    await service.patch("server", "fs", {"approval_policy": "always"}, BY)
    await service.patch("server", "fs", {"http": {"tls": None, "headers": {"X-New": "1"}}}, BY)
    wanted = {**plain, "budgets": {**plain["budgets"], "max_concurrency": 2}}
    wanted["approval_policy"] = {**plain["approval_policy"], "default": "always"}
    wanted["http"] = {k: v for k, v in plain["http"].items() if k != "tls"}
    wanted["http"]["headers"] = {**plain["http"]["headers"], "X-New": "1"}
    assert json.loads(dump((await service.get("server", "fs")).record, "json")) == wanted


async def test_a_patch_of_a_tasks_config_keeps_the_rest_of_its_policy(service: RegistryService):
    await service.create("task", FULL["task"][1], BY)
    patch = {"config": {"mcp.read_only": "false", "mcp.profile": None, "more": 1}}
    await service.patch("task", "review", patch, BY)
    record = service.snapshot().tasks["review"]
    assert (record.mcp.read_only, record.mcp.profile) == (False, None)
    assert record.mcp.tool_denylist == ("delete_*", "gitlab/drop_*")
    assert record.config == {**FULL["task"][1]["config"], "more": 1}
    for wrong in (
        {"config": {"mcp.read_only": "maybe"}},
        {"config": {"mcp.enabled": "true"}, "mcp": {}},
    ):
        with pytest.raises(InvalidRecord):
            await service.patch("task", "review", wrong, BY)


async def test_a_write_that_changes_nothing_answers_with_the_same_revision(
    service: RegistryService,
):
    await service.put("server", "fs", server("fs"), BY)
    again = await service.put("server", "fs", server("fs"), BY)
    assert (again.revision, again.change) == (1, None)
    assert again.stored("server", "fs").revision == 1


@pytest.mark.requirement("registry:import")
async def test_an_import_is_previewed_upserted_or_replaces(service: RegistryService):
    await service.put("server", "old", server("old"), BY)
    await service.put("task", "review", PLAIN["task"][1], BY)
    many = records_of({"servers": [server("a"), server("b")], "profiles": [{"name": "p"}]})
    preview = await service.import_records(many, "preview", BY)
    assert (preview.revision, service.view.revision) == (2, 2)
    assert changed(preview.diff()) == "+ server a\n+ server b\n+ profile p"
    upserted = await service.import_records(many, "upsert", BY)
    assert (upserted.revision, len(service.view.objects)) == (3, 5)
    dry = await service.import_records(many[:1], "replace", BY, dry_run=True)
    assert changed(dry.diff()) == "- server b\n- server old"
    await service.import_records(many[:1], "replace", BY)
    assert [stored.id for stored in service.view.of_kind("server")] == ["a"]
    assert (service.view.revision, set(service.snapshot().tasks)) == (4, {"review"})


@pytest.mark.requirement("registry:import")
async def test_an_import_with_a_problem_imports_nothing_and_names_every_one(
    service: RegistryService,
):
    many: list[tuple[Kind, dict[str, Any]]] = [
        ("server", server("a")),
        ("server", {"server_id": "b"}),
        ("backend", {"name": "x"}),
    ]
    with pytest.raises(InvalidRecord) as raised:
        await service.import_records(many, "upsert", BY)
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "server[1].transport",
        "backend[2].base_url",
    ]
    with pytest.raises(InvalidRecord, match="twice"):
        await service.import_records([many[0], many[0]], "upsert", BY)
    assert service.view.revision == 0


async def test_a_dry_run_checks_everything_and_writes_nothing(service: RegistryService):
    await service.put("server", "fs", server("fs"), BY)
    edit = Edit(kind="server", key="fs", data={"enabled": False}, op="merge", expected=1)
    assert changed((await service.apply([edit], BY, dry_run=True)).diff()) == "~ server fs"
    with pytest.raises(Conflict):
        await service.apply(
            [Edit(kind="server", key="fs", op="delete", expected=7)], BY, dry_run=True
        )
    assert service.view.revision == 1


@pytest.mark.requirement("loading:file-owned")
async def test_a_file_owned_record_is_read_only_until_adopted(
    service: RegistryService, store: Store
):
    await store.write([write("fs", owner="/etc/fs.toml")], BY)
    for edit in (
        service.put("server", "fs", server("fs", enabled=False), BY),
        service.patch("server", "fs", {"enabled": False}, BY),
        service.delete("server", "fs", BY),
        service.import_records([("server", server("fs"))], "upsert", BY),
        service.rollback(0, BY),
    ):
        with pytest.raises(OwnedByFile) as raised:
            await edit
        assert raised.value.details["owned"] == [
            {"kind": "server", "id": "fs", "owner": "/etc/fs.toml"}
        ]
    await service.import_records([("server", server("other"))], "replace", BY)
    assert ("server", "fs") in service.view.objects
    adopted = await service.adopt("server", "fs", BY)
    assert adopted.stored("server", "fs").owner is None
    await service.patch("server", "fs", {"enabled": False}, BY)
    with pytest.raises(NotFound):
        await service.adopt("server", "none", BY)


@pytest.mark.requirement("registry:expected-revision")
def test_each_refusal_has_a_face():
    faces = {
        NotFound("server", "x"): (404, "NOT_FOUND"),
        AlreadyExists("server", "x", 1): (409, "ALREADY_EXISTS"),
        Conflict("server", "x", expected=1, current=2): (412, "ABORTED"),
        OwnedByFile([("server", "x", "x.toml")]): (409, "FAILED_PRECONDITION"),
        Compacted(1, 2): (410, "FAILED_PRECONDITION"),
        StoreChanged(Position("a"), Position("b")): (410, "FAILED_PRECONDITION"),
        FutureRevision(3, 2): (400, "OUT_OF_RANGE"),
        StoreUnavailable("x"): (503, "UNAVAILABLE"),
        InvalidRecord(["x"]): (422, "INVALID_ARGUMENT"),
    }
    for error, expected in faces.items():
        found = face(error.code)
        assert (found.http, found.grpc) == expected, error


async def test_the_snapshot_is_what_policy_and_nodes_use(service: RegistryService):
    for kind in KINDS:
        await service.create(kind, PLAIN[kind][1], BY)
    snapshot = service.snapshot()
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.store_id, snapshot.revision) == (service.view.store_id, len(KINDS))
    assert [list(snapshot.items(kind)) for kind in KINDS] == [[PLAIN[kind][0]] for kind in KINDS]
