"""A dry run reads everything and writes nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bascule.app.data_dir import DEMO_FOLDER, STORE_FILE
from bascule.app.dry_run import dry_run
from bascule.app.reload import loader_of
from bascule.app.settings import McpSettings, Settings
from bascule.control.registry.service import open_registry
from bascule.control.registry.sqlite_store import SqliteStore
from bascule.db.errors import StoreUnavailable
from bascule.errors import InvalidRecord
from tests.control.registry.build import BY, changed, server

RECORD = 'server_id = "{0}"\ntransport = "stdio"\n[stdio]\ncommand = "true"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mcp.d"
    made.mkdir()
    for name in ("a", "b"):
        (made / f"{name}.toml").write_text(RECORD.format(name), encoding="utf-8")
    return made


@pytest.fixture
def settings(tmp_path: Path, folder: Path) -> Settings:
    named = McpSettings(registry_dir=str(folder))
    return Settings(data_dir=str(tmp_path / "data"), mcp=named)


@pytest.fixture
def data(settings: Settings) -> Path:
    made = Path(settings.data_dir)
    made.mkdir()
    return made


async def fill(data: Path, settings: Settings) -> None:
    """Make a store with what the files say, and something of one's own."""
    store = await SqliteStore(data / STORE_FILE).open()
    async with open_registry(store) as service:
        await service.put("server", "mine", server("mine"), BY)
        await loader_of(service, settings, None).load()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_without_a_store_everything_is_new_and_none_is_made(
    settings: Settings, tmp_path: Path
):
    written = await dry_run(settings)
    assert changed(written.diff()) == "+ server a\n+ server b"
    assert names(tmp_path) == ["mcp.d"]


async def test_the_difference_is_to_what_is_stored_and_the_store_stays_as_it_is(
    settings: Settings, folder: Path, data: Path
):
    await fill(data, settings)
    before = contents(data)
    (folder / "a.toml").unlink()
    (folder / "c.toml").write_text(RECORD.format("c"), encoding="utf-8")
    (folder / "mine.toml").write_text(RECORD.format("mine"), encoding="utf-8")
    written = await dry_run(settings)
    assert changed(written.diff()) == "+ server c\n- server a"
    assert "is edited in the registry" in written.problems[0]
    assert contents(data) == before


async def test_what_is_not_yet_in_the_main_file_counts_as_well(
    settings: Settings, folder: Path, data: Path
):
    """A process that serves keeps its newest writes in the log beside the store."""
    await fill(data, settings)
    store = await SqliteStore(data / STORE_FILE).open()
    async with open_registry(store) as service:
        (folder / "c.toml").write_text(RECORD.format("c"), encoding="utf-8")
        await loader_of(service, settings, None).load()
        names = set(contents(data))
        written = await dry_run(settings)
        assert set(contents(data)) == names
    assert not written.diff()


async def test_a_record_of_ones_own_with_a_demos_name_would_replace_it(
    settings: Settings, folder: Path, data: Path
):
    (data / DEMO_FOLDER).mkdir()
    (data / DEMO_FOLDER / "notes.toml").write_text(RECORD.format("notes"), encoding="utf-8")
    store = await SqliteStore(data / STORE_FILE).open()
    async with open_registry(store) as service:
        await loader_of(service, settings, data / DEMO_FOLDER).load()
    own = RECORD.format("notes").replace("true", "false")
    (folder / "notes.toml").write_text(own, encoding="utf-8")
    written = await dry_run(settings)
    assert (changed(written.diff()), written.problems) == ("~ server notes", ())


async def test_what_a_start_would_refuse_is_refused(settings: Settings, folder: Path):
    (folder / "a.toml").write_text("server_id = 3", encoding="utf-8")
    assert len((await dry_run(settings)).problems) == 1
    strict = Settings(data_dir=settings.data_dir, mcp=settings.mcp, strict=True)
    with pytest.raises(InvalidRecord, match=r"a\.toml"):
        await dry_run(strict)
    nowhere = Settings(data_dir=settings.data_dir, mcp=McpSettings(registry_file="/nowhere"))
    with pytest.raises(InvalidRecord, match="nowhere"):
        await dry_run(nowhere)


async def test_a_store_that_cannot_be_read_is_named(settings: Settings, data: Path):
    (data / STORE_FILE).write_bytes(b"no database, but long enough to be taken for one" * 50)
    with pytest.raises(StoreUnavailable, match=STORE_FILE):
        await dry_run(settings)


async def test_a_file_of_agents_that_a_start_would_refuse_is_refused(
    settings: Settings, tmp_path: Path
):
    agents = tmp_path / "agents.toml"
    agents.write_text('[[agents]]\nid = "main"\n', encoding="utf-8")
    good = msgspec.structs.replace(settings, agents=str(agents))
    assert "+ server a" in (await dry_run(good)).diff().text
    agents.write_text('[[mcp]]\nname = "misplaced"\n', encoding="utf-8")
    with pytest.raises(InvalidRecord, match="mcp"):
        await dry_run(good)
