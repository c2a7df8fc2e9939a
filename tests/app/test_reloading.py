"""Files are loaded when they change, on a signal, now and then, and when somebody asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.app.reload import RESCAN_SECONDS, Reloading
from bascule.app.settings import McpSettings, Settings
from bascule.asgi.guard import GuardedApp
from bascule.clock import SYSTEM_CLOCK
from bascule.control.registry.duties import FileCopy
from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Change
from bascule.testing.clock import FakeClock
from bascule.wire.api.addresses import RESCAN
from tests.asgi.caller import Answer, ask, bearer, make_tokens
from tests.control.registry.memory_duties import MemoryDuties, Office
from tests.control.registry.memory_store import MemoryStore

BROKEN = "server_id = 3"
NONE = '{"servers": []}'


def record(server_id: str, command: str = "true") -> str:
    return f'server_id = "{server_id}"\ntransport = "stdio"\n[stdio]\ncommand = "{command}"\n'


def make(folder: Path, server_id: str) -> None:
    folder.mkdir()
    (folder / f"{server_id}.toml").write_text(record(server_id), encoding="utf-8")


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mcp.d"
    make(made, "a")
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "many.json"
    made.write_text(NONE, encoding="utf-8")
    return made


@pytest.fixture
async def service() -> AsyncIterator[RegistryService]:
    async with open_registry(MemoryStore()) as service:
        yield service


class Files:
    """Reloading over a folder and a file, and what it said."""

    def __init__(self, service: RegistryService, folder: Path, file: Path) -> None:
        named = McpSettings(registry_dir=str(folder), registry_file=str(file))
        self.service = service
        self.told: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        self.reloading = Reloading(service, Settings(mcp=named), None, self._tell)

    def _tell(self, said: Any) -> None:
        self.told.put_nowait(tuple(said))

    @property
    def servers(self) -> set[str]:
        return set(self.service.snapshot().servers)

    async def until(self, *servers: str) -> int:
        """Wait until the registry has exactly these servers; return its revision."""
        events = await self.service.watch(0)
        async with asyncio.timeout(15):
            while self.servers != set(servers):
                await anext(events)
        return self.service.view.revision

    async def next_told(self) -> tuple[str, ...]:
        async with asyncio.timeout(15):
            return await self.told.get()


@pytest.fixture
def files(service: RegistryService, folder: Path, file: Path) -> Files:
    return Files(service, folder, file)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[asyncio.Task[None]]:
    """Run something for as long as the block; it must not have ended by itself."""
    task = asyncio.create_task(work)
    try:
        yield task
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=5)
    assert task.cancelled()


# --- on a change


def put(path: Path, text: str) -> None:
    """Write as editors do, beside the file and then into its place: nobody sees half of it."""
    new = path.with_name(f"{path.name}~")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


async def test_a_change_of_a_file_is_loaded(files: Files, folder: Path, file: Path):
    async with beside(files.reloading.on_change(SYSTEM_CLOCK)):
        await files.until("a")
        put(folder / "b.toml", record("b"))
        await files.until("a", "b")
        (folder / "tasks").mkdir()
        (folder / "a.toml").unlink()
        await files.until("b")
        put(folder / "tasks" / "t.toml", 'task_id = "t"')
        async with asyncio.timeout(15):
            events = await files.service.watch(0, kinds=["task"])
            assert isinstance(await anext(events), Change)
        for name in ("c", "d"):
            servers = [{"server_id": name, "transport": "stdio", "stdio": {"command": "true"}}]
            put(file, json.dumps({"servers": servers}))
            await files.until("b", name)
    assert files.told.empty()


async def test_a_burst_of_writes_is_one_load(files: Files, folder: Path):
    async with beside(files.reloading.on_change(SYSTEM_CLOCK)):
        before = await files.until("a")
        for number in range(20):
            (folder / "a.toml").write_text(record("a", str(number)), encoding="utf-8")
            (folder / f"s{number}.toml").write_text(record(f"s{number}"), encoding="utf-8")
        after = await files.until("a", *(f"s{number}" for number in range(20)))
    # Two, where a load was under way when the burst began.
    assert after - before in (1, 2)


async def test_a_directory_may_go_and_come_back(files: Files, folder: Path):
    async with beside(files.reloading.on_change(SYSTEM_CLOCK)):
        await files.until("a")
        await asyncio.to_thread(folder.rename, folder.with_name("away"))
        assert "no such directory" in (await files.next_told())[0]
        assert files.servers == {"a"}, "what is gone removes nothing"
        make(folder, "b")
        await files.until("b")
        (folder / "c.toml").write_text(record("c"), encoding="utf-8")
        await files.until("b", "c")


async def test_a_directory_that_is_replaced_is_watched_in_its_new_form(files: Files, folder: Path):
    async with beside(files.reloading.on_change(SYSTEM_CLOCK)):
        await files.until("a")
        for name in ("b", "c"):
            make(folder.with_name(f"new-{name}"), name)
            swap(folder, folder.with_name(f"new-{name}"))
            await files.until(name)
        (folder / "d.toml").write_text(record("d"), encoding="utf-8")
        await files.until("c", "d")


async def test_a_mistake_is_told_once_and_again_when_it_is_another(files: Files, folder: Path):
    async with beside(files.reloading.on_change(SYSTEM_CLOCK)):
        await files.until("a")
        (folder / "b.toml").write_text(BROKEN, encoding="utf-8")
        [said] = await files.next_told()
        assert said.startswith("b.toml: server_id: ")
        (folder / "c.toml").write_text(record("c"), encoding="utf-8")
        await files.until("a", "c")
        assert files.told.empty()
        (folder / "b.toml").unlink()
        assert await files.next_told() == ()


async def test_what_is_doubtful_about_records_is_told_as_well(files: Files, folder: Path):
    (folder / "b.toml").write_text(record("a"), encoding="utf-8")
    unused = "\n[http]\nurl = 'https://example.org/mcp'\n"
    (folder / "c.toml").write_text(record("c") + unused, encoding="utf-8")
    await files.reloading.start()
    assert files.servers == {"a", "c"}
    assert await files.next_told() == (
        "server 'a' is defined by a.toml and by b.toml; b.toml counts",
        "c.toml: http: is not used by transport 'stdio'",
    )


@pytest.mark.requirement("files:unknown-fields")
async def test_a_misspelt_field_leaves_its_record_out_and_is_told(files: Files, folder: Path):
    (folder / "c.toml").write_text(record("c") + "colour = 1\n", encoding="utf-8")
    await files.reloading.start()
    assert files.servers == {"a"}
    assert await files.next_told() == ("c.toml: stdio.colour: unknown field",)


# --- at other times


@pytest.mark.requirement("loading:reload:periodic")
async def test_a_periodic_load_finds_changes_and_outlives_mistakes(files: Files, folder: Path):
    clock = FakeClock()
    async with beside(files.reloading.now_and_then(clock)):
        await clock.advance(RESCAN_SECONDS - 1)
        assert files.service.view.revision == 0
        await clock.advance(1)
        await files.until("a")
        hidden = await asyncio.to_thread(folder.rename, folder.with_name("hidden"))
        await clock.advance(RESCAN_SECONDS)
        assert "no such directory" in (await files.next_told())[0]
        hidden.rename(folder)
        (folder / "a.toml").rename(folder / "b.toml")
        (folder / "b.toml").write_text(record("b"), encoding="utf-8")
        await clock.advance(RESCAN_SECONDS)
        await files.until("b")


async def test_an_order_to_reload_loads_and_what_is_wrong_is_told_each_time(
    files: Files, folder: Path
):
    ordered = asyncio.Event()
    async with beside(files.reloading.on_order(ordered)):
        ordered.set()
        await files.until("a")
        (folder / "b.toml").write_text(BROKEN, encoding="utf-8")
        for _ in range(2):
            ordered.set()
            [problem] = await files.next_told()
            assert "b.toml" in problem
        assert files.servers == {"a"}


#: A file and what it says; the words that the refusal must have.
MALFORMED: dict[str, tuple[str, str, str]] = {
    "not TOML": ("b.toml", "server_id = ", "b.toml: "),
    "not JSON": ("b.json", '{"server_id": ', "b.json: "),
    "a key twice": ("b.json", '{"server_id": "b", "server_id": "c"}', "b.json: "),
    "no record at all": ("b.json", "[]", "b.json: "),
    "a wrong type": ("b.toml", BROKEN, "b.toml: server_id: "),
    "an id that is none": ("b.toml", record("B"), "b.toml: server_id: "),
    "an unknown transport": (
        "b.toml",
        record("b").replace("stdio", "pigeon", 1),
        "b.toml: transport: ",
    ),
    "an empty pattern": ("b.toml", 'allowed_tools = [""]\n' + record("b"), "allowed_tools[0]: "),
    "an unknown field": ("b.toml", record("b") + "colour = 1\n", "b.toml: stdio.colour: "),
    "a broken condition": (
        "b.toml",
        record("b") + '[[approval_policy.rules]]\nwhen = "((("\n',
        "approval_policy.rules[0].when: ",
    ),
    "a record that is there already": ("b.toml", record("a"), "only one may define it"),
    "another's namespace": (
        "b.toml",
        'tool_namespace = "mcp.a"\n' + record("b"),
        "b.toml: tool_namespace: ",
    ),
    "a broken one of many": (
        "b.json",
        '{"servers": [{"server_id": "c"}]}',
        "b.json servers[0]: transport: ",
    ),
    "not UTF-8": ("b.toml", "\udcff", "b.toml: "),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_file_is_refused_by_name_and_path_and_changes_nothing(
    service: RegistryService, folder: Path, case: str
):
    name, text, said = MALFORMED[case]
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    named = McpSettings(registry_dir=str(folder))
    files = Reloading(service, Settings(mcp=named, strict=True), None, print)
    tokens = make_tokens()
    answer = await ask(GuardedApp(files.routes(), tokens), "POST", RESCAN, await bearer(tokens))
    assert (answer.status, answer.code) == (422, "invalid_record")
    assert any(said in problem for problem in answer.json["error"]["details"]["problems"])
    assert service.view.revision == 0


@pytest.mark.requirement("loading:reload:command")
async def test_a_rescan_can_be_asked_for_and_tried_first(files: Files, folder: Path):
    tokens = make_tokens()
    app = GuardedApp(files.reloading.routes(), tokens)
    admin = await bearer(tokens)

    async def rescan(query: bytes, headers: dict[str, str] = admin) -> Answer:
        async def queried(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "query_string": query}, receive, send)

        return await ask(queried, "POST", RESCAN, headers)

    (folder / "b.toml").write_text(BROKEN, encoding="utf-8")
    tried = (await rescan(b"dry_run=true")).json
    assert (tried["changed"], tried["revision"]) == (True, 0)
    assert "+ server a" in tried["diff"]
    assert "b.toml" in tried["problems"][0]
    done = (await rescan(b"")).json
    assert (done["changed"], done["revision"]) == (True, 1)
    again = (await rescan(b"")).json
    assert (again["changed"], again["revision"], again["diff"]) == (False, 1, ["no change"])
    refused = await rescan(b"dry_run=perhaps")
    assert (refused.status, refused.json["error"]["details"]) == (400, {"parameter": "dry_run"})
    assert (await rescan(b"", {})).status == 401
    assert (await rescan(b"", await bearer(tokens, "viewer"))).status == 403


@pytest.mark.requirement("loading:replicas")
async def test_files_that_do_not_count_are_left_out_and_the_reason_is_told(folder: Path):
    office = Office()
    other = FileCopy(replica="other", digest="another", seen_at=SYSTEM_CLOCK.now(), load=1)
    office.copies["other"] = other
    named = Settings(mcp=McpSettings(registry_dir=str(folder)))
    async with open_registry(MemoryStore(), duties=MemoryDuties(office, "here")) as service:
        told: list[str] = []
        files = Reloading(service, named, None, told.extend)
        await files.start()
        assert service.view.revision == 0
        assert files.trouble is not None
        assert (told, files.problems) == ([files.trouble], (files.trouble,))
        tokens = make_tokens()
        app = GuardedApp(files.routes(), tokens)
        answer = await ask(app, "POST", RESCAN, await bearer(tokens))
        assert (answer.json["changed"], answer.json["problems"]) == (False, [files.trouble])
        put(folder / "a.toml", record("b"))
        assert (await ask(app, "POST", RESCAN, await bearer(tokens))).json["changed"]
        assert (set(service.snapshot().servers), files.trouble) == ({"b"}, None)
