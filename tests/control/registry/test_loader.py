"""Files into the registry: one revision, owners remembered, nothing lost to a broken file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bascule.control.registry.errors import OwnedByFile
from bascule.control.registry.loader import Loader
from bascule.control.registry.service import RegistryService
from bascule.errors import InvalidRecord
from tests.control.registry.build import BY, changed, server

FS = """
server_id = "fs"
transport = "stdio"
allowed_tools = ["read_*"]
[stdio]
command = "fs"
"""
GIT = FS.replace('"fs"', '"git"')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "records"
    (made / "tasks").mkdir(parents=True)
    (made / "fs.toml").write_text(FS, encoding="utf-8")
    (made / "git.toml").write_text(GIT, encoding="utf-8")
    (made / "tasks" / "review.toml").write_text('task_id = "review"', encoding="utf-8")
    return made


@pytest.fixture
def loader(service: RegistryService, folder: Path) -> Loader:
    return Loader(service, folder)


def owners(service: RegistryService) -> dict[str, str | None]:
    return {key[1]: stored.owner for key, stored in service.view.objects.items()}


@pytest.mark.requirement("loading:reload:one-revision")
async def test_a_load_is_one_revision_and_the_same_again_is_none(
    loader: Loader, service: RegistryService, folder: Path
):
    written = await loader.load()
    assert (written.revision, written.problems, written.warnings) == (1, (), ())
    assert owners(service) == {
        "fs": str(folder / "fs.toml"),
        "git": str(folder / "git.toml"),
        "review": str(folder / "tasks" / "review.toml"),
    }
    again = await loader.load()
    assert (again.revision, again.change) == (1, None)


@pytest.mark.requirement("loading:upsert")
async def test_a_changed_file_replaces_the_record_it_owns(
    loader: Loader, service: RegistryService, folder: Path
):
    await loader.load()
    (folder / "fs.toml").write_text(FS.replace("read_*", "list_*"), encoding="utf-8")
    (folder / "new.toml").write_text(FS.replace('"fs"', '"new"'), encoding="utf-8")
    written = await loader.load()
    assert written.revision == 2
    assert changed(written.diff()) == "+ server new\n~ server fs"
    assert service.snapshot().servers["fs"].allowed_tools == ("list_*",)
    assert (await service.get("server", "git")).revision == 1


@pytest.mark.requirement("loading:removed-file")
async def test_removing_a_file_deletes_what_it_owns_and_nothing_else(
    loader: Loader, service: RegistryService, folder: Path
):
    await service.put("server", "mine", server("mine"), BY)
    await loader.load()
    (folder / "fs.toml").unlink()
    written = await loader.load()
    assert written.revision == 3
    assert set(owners(service)) == {"mine", "git", "review"}


@pytest.mark.requirement("loading:broken-keeps-good")
@pytest.mark.parametrize(
    "broken",
    [
        'server_id = "fs',
        FS.replace("stdio", "pigeon"),
        "",
        '[[servers]]\nserver_id = "other"\ntransport = "stdio"',
    ],
)
async def test_a_broken_file_keeps_the_record_it_defined_before(
    loader: Loader, service: RegistryService, folder: Path, broken: str
):
    await loader.load()
    good = await service.get("server", "fs")
    (folder / "fs.toml").write_text(broken, encoding="utf-8")
    (folder / "git.toml").unlink()
    written = await loader.load()
    assert await service.get("server", "fs") == good
    assert set(service.snapshot().servers) == {"fs"}
    assert all("fs.toml" in problem for problem in written.problems)
    assert written.problems
    (folder / "fs.toml").unlink()
    await loader.load()
    assert not service.snapshot().servers


async def test_a_dry_run_shows_the_difference_and_changes_nothing(
    loader: Loader, service: RegistryService, folder: Path
):
    await loader.load()
    (folder / "fs.toml").write_text(FS.replace("read_*", "list_*"), encoding="utf-8")
    (folder / "git.toml").unlink()
    dry = await loader.load(dry_run=True)
    text = dry.diff().text
    assert text.startswith("~ server fs\n    allowed_tools: read_* -> list_*\n- server git")
    assert "fs allowed_tools: read_* -> list_*" in text
    assert service.view.revision == 1
    assert set(service.snapshot().servers) == {"fs", "git"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("odd.toml", FS.replace('"fs"', '"odd"') + "\n[extra]\nx = 1\n", "extra: unknown field"),
        ("odd.toml", "server_id = ", "not valid TOML"),
        ("zz.toml", FS, "only one may define it"),
    ],
)
async def test_a_strict_load_refuses_everything_for_one_mistake(
    service: RegistryService, folder: Path, name: str, text: str, said: str
):
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRecord, match=said):
        await Loader(service, folder, strict=True).load()
    assert service.view.revision == 0
    assert (await Loader(service, folder).load()).revision == 1


@pytest.mark.requirement("loading:file-owned")
async def test_a_loaded_record_is_read_only_until_adopted_and_then_the_files_word_is_void(
    loader: Loader, service: RegistryService, folder: Path
):
    await loader.load()
    with pytest.raises(OwnedByFile, match="adopt"):
        await service.patch("server", "fs", {"enabled": False}, BY)
    await service.adopt("server", "fs", BY)
    await service.patch("server", "fs", {"enabled": False}, BY)
    (folder / "fs.toml").write_text(FS.replace("read_*", "list_*"), encoding="utf-8")
    written = await loader.load()
    assert written.change is None
    assert written.problems == (
        "fs.toml: server 'fs' is edited in the registry; the file's word does not count",
    )
    (folder / "fs.toml").unlink()
    await loader.load()
    assert service.snapshot().servers["fs"].enabled is False


async def test_a_file_cannot_take_over_a_record_made_elsewhere(
    loader: Loader, service: RegistryService
):
    await service.put("server", "fs", server("fs"), BY)
    written = await loader.load()
    assert len(written.problems) == 1
    assert (await service.get("server", "fs")).revision == 1
    assert set(service.snapshot().servers) == {"fs", "git"}


async def test_a_record_may_move_to_another_file_of_the_directory(
    loader: Loader, service: RegistryService, folder: Path
):
    await loader.load()
    (folder / "fs.toml").rename(folder / "files.toml")
    written = await loader.load()
    assert written.revision == 2
    assert owners(service)["fs"] == str(folder / "files.toml")


async def test_another_directory_takes_over_only_what_was_left_behind(
    loader: Loader, service: RegistryService, folder: Path, tmp_path: Path
):
    await loader.load()
    other = tmp_path / "other"
    other.mkdir()
    (other / "fs.toml").write_text(FS.replace("read_*", "list_*"), encoding="utf-8")
    elsewhere = Loader(service, other)
    refused = await elsewhere.load()
    assert refused.change is None
    assert "owned by" in refused.problems[0]
    (folder / "fs.toml").unlink()
    assert (await elsewhere.load()).problems == ()
    assert owners(service)["fs"] == str(other / "fs.toml")
    assert owners(service)["git"] == str(folder / "git.toml")


async def test_one_file_of_many_records_owns_them_all(service: RegistryService, tmp_path: Path):
    path = tmp_path / "many records.json"
    path.write_text(
        '{"servers": [{"server_id": "a", "transport": "stdio", "stdio": {"command": "a"}},'
        ' {"server_id": "b", "transport": "stdio", "stdio": {"command": "b"}}],'
        ' "platform": {"tool_denylist": ["x"]}}',
        encoding="utf-8",
    )
    loader = Loader(service, path)
    assert (await loader.load()).revision == 1
    assert owners(service) == dict.fromkeys(("a", "b", "platform"), str(path))
    path.write_text('{"servers": [{"server_id": "a", "transport": "stdio"}]}', encoding="utf-8")
    broken = await loader.load()
    assert (broken.change, len(broken.problems)) == (None, 1)
    path.write_text('{"servers": []}', encoding="utf-8")
    assert (await loader.load()).revision == 2
    assert owners(service) == {}


async def test_a_directory_that_is_gone_removes_nothing(
    loader: Loader, service: RegistryService, folder: Path
):
    await loader.load()
    await asyncio.to_thread(folder.rename, folder.with_name("moved"))
    with pytest.raises(InvalidRecord, match="no such directory"):
        await loader.load()
    assert service.view.revision == 1
    assert len(service.view.objects) == 3


async def test_a_file_that_claims_anothers_namespace_is_left_out_alone(
    loader: Loader, service: RegistryService, folder: Path
):
    await service.put("server", "zz", server("zz", tool_namespace="mcp.taken"), BY)
    (folder / "fs.toml").write_text('tool_namespace = "mcp.taken"' + FS, encoding="utf-8")
    written = await loader.load()
    assert set(service.snapshot().servers) == {"git", "zz"}
    assert written.problems == (
        "fs.toml: tool_namespace: 'mcp.taken' is already the namespace of server 'zz'",
    )


async def test_what_is_left_out_keeps_its_older_self_and_its_namespace(
    loader: Loader, service: RegistryService, folder: Path
):
    """fs may not move to the namespace of zz, so git may not have the one that fs keeps."""
    await service.put("server", "zz", server("zz", tool_namespace="mcp.taken"), BY)
    await loader.load()
    (folder / "fs.toml").write_text('tool_namespace = "mcp.taken"' + FS, encoding="utf-8")
    (folder / "git.toml").write_text('tool_namespace = "mcp.fs"' + GIT, encoding="utf-8")
    written = await loader.load()
    assert written.change is None
    assert len(written.problems) == 2
    assert service.snapshot().servers["git"].tool_namespace == "mcp.git"


# --- several sources


def many(*server_ids: str, **fields: str) -> str:
    servers = [
        {"server_id": one, "transport": "stdio", "stdio": {"command": "x"}, **fields}
        for one in server_ids
    ]
    return json.dumps({"servers": servers})


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def remove(path: Path) -> None:
    path.unlink()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "many.json"


@pytest.mark.requirement("loading:reload:one-revision")
async def test_a_directory_and_a_file_are_one_revision_together(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many("more"))
    loader = Loader(service, folder, file)
    assert (await loader.load()).revision == 1
    assert set(service.snapshot().servers) == {"fs", "git", "more"}
    put(file, many("most"))
    (folder / "fs.toml").unlink()
    written = await loader.load()
    assert written.revision == 2
    assert changed(written.diff()) == "+ server most\n- server fs\n- server more"
    assert (await loader.load()).change is None


async def test_of_two_sources_that_define_a_record_the_first_counts_whatever_came_before(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many("fs", "more"))
    await Loader(service, file).load()
    assert owners(service)["fs"] == str(file)
    written = await Loader(service, folder, file).load()
    first = str(folder / "fs.toml")
    assert owners(service)["fs"] == first
    assert written.problems == (
        f"many.json servers[0]: server 'fs' is defined by {first}, which counts",
    )
    with pytest.raises(InvalidRecord, match="which counts"):
        await Loader(service, folder, file, strict=True).load()


async def test_a_record_that_moves_from_one_source_to_another_is_never_gone(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many())
    loader = Loader(service, folder, file)
    await loader.load()
    (folder / "git.toml").unlink()
    put(file, many("git"))
    written = await loader.load()
    assert written.problems == ()
    assert changed(written.diff()) == "~ server git"
    assert owners(service)["git"] == str(file)


@pytest.mark.requirement("loading:broken-keeps-good")
async def test_a_broken_source_keeps_its_records_while_the_other_goes_on(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many("more"))
    loader = Loader(service, folder, file)
    await loader.load()
    put(file, "{")
    (folder / "new.toml").write_text(FS.replace('"fs"', '"new"'), encoding="utf-8")
    written = await loader.load()
    assert len(written.problems) == 1
    assert set(service.snapshot().servers) == {"fs", "git", "more", "new"}


async def test_while_a_source_is_gone_nothing_is_loaded(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many("more"))
    loader = Loader(service, folder, file)
    await loader.load()
    remove(file)
    (folder / "fs.toml").unlink()
    with pytest.raises(InvalidRecord, match=r"no such directory: .*many\.json"):
        await loader.load()
    assert service.view.revision == 1
    put(file, many("more"))
    assert (await loader.load()).revision == 2


async def test_a_namespace_that_two_sources_claim_is_the_firsts(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many("other", tool_namespace="mcp.fs"))
    written = await Loader(service, folder, file).load()
    assert set(service.snapshot().servers) == {"fs", "git"}
    assert written.problems == (
        "many.json servers[0]: tool_namespace: 'mcp.fs' is already the namespace of server 'fs'",
    )


async def test_what_two_sources_contend_for_leaves_the_older_self_alone(
    service: RegistryService, folder: Path, file: Path
):
    put(file, many("other"))
    loader = Loader(service, folder, file)
    await loader.load()
    put(file, many("other", tool_namespace="mcp.fs"))
    written = await loader.load()
    assert (written.change, len(written.problems)) == (None, 1)
    assert service.snapshot().servers["other"].tool_namespace == "mcp.other"


async def test_defaults_step_back_for_everybody_elses_records_without_a_word(
    service: RegistryService, folder: Path, tmp_path: Path
):
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "git.toml").write_text(GIT.replace("read_*", "demo_*"), encoding="utf-8")
    (demo / "taken.toml").write_text(
        'tool_namespace = "mcp.fs"' + FS.replace('"fs"', '"taken"'), encoding="utf-8"
    )
    (demo / "mine.toml").write_text(FS.replace('"fs"', '"mine"'), encoding="utf-8")
    await service.put("server", "mine", server("mine"), BY)
    loader = Loader(service, folder, defaults=demo, strict=True)
    assert (await loader.load()).problems == ()
    assert service.snapshot().servers["git"].allowed_tools == ("read_*",)
    assert set(service.snapshot().servers) == {"fs", "git", "mine"}
    (folder / "git.toml").unlink()
    await loader.load()
    assert service.snapshot().servers["git"].allowed_tools == ("demo_*",)
    assert owners(service)["mine"] is None


async def test_a_link_to_itself_is_no_record_and_no_disaster(loader: Loader, folder: Path):
    (folder / "loop.toml").symlink_to("loop.toml")
    written = await loader.load()
    assert (written.revision, written.problems) == (1, ())
