"""``bascule servers`` on a server that has to be fetched first, and on what it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bascule.node.homes import Homes
from bascule.testing.server import ScriptedServer
from tests.cli.served import Served, command, served
from tests.flow.launchers import Launcher


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "data", "--empty") as up:
        yield up


def add(up: Served, launcher: Launcher) -> None:
    program, args = ScriptedServer().command
    # What it fetches is not there before somebody says so, and lies where no sandbox lets it.
    options = ("--allow", "*", "--sandbox", "limits")
    added = up("servers", "add", "time", *options, "--", str(launcher.program), program, *args)
    assert added.code == 0, added.err


def status_of(up: Served) -> dict[str, Any]:
    (shown,) = up.json("servers", "status", "time")["servers"]
    return shown["status"]


@pytest.mark.requirement("pool:starting-shown", "process:home:kept")
def test_a_server_that_is_being_fetched_says_so_and_what_it_said_last(up: Served, tmp_path: Path):
    launcher = Launcher(tmp_path / "bin")
    add(up, launcher)
    words = "fetching or starting; it said: Downloading numpy (12.3 MiB) with no key"
    while words not in (trial := up("servers", "test", "time", "--timeout", "3")).err:
        assert trial.code == 1  # it has not said anything yet
    assert trial.code == 1
    while (status := status_of(up))["starting"] != words:
        pass  # the node tells of it now and then
    assert status["state"] == "connecting"
    assert words in " ".join(up("servers", "status", "time").out.split())
    launcher.arrive()
    assert up("servers", "test", "time").code == 0
    homes = up.data / "homes"
    assert {path.name for path in homes.glob("time/*/home/*")} == {"fetched", "log"}


@pytest.mark.requirement("cli:servers:clean")
def test_clean_leaves_what_is_in_use_and_removes_the_rest(up: Served, tmp_path: Path):
    launcher = Launcher(tmp_path / "bin")
    add(up, launcher)
    up("servers", "test", "time", "--timeout", "2")
    launcher.arrive()
    assert up("servers", "test", "time").code == 0
    (busy,) = up.json("servers", "clean", "time")["homes"]
    assert (busy["in_use"], busy["removed"]) == (True, False)
    assert up("servers", "disable", "time").code == 0
    while (dry := up.json("servers", "clean", "time", "--dry-run"))["homes"][0]["in_use"]:
        pass  # its process is on its way out
    assert (dry["dry_run"], [home["removed"] for home in dry["homes"]]) == (True, [False])
    assert Path(busy["folder"]).is_dir()
    gone = up("servers", "clean", "time")
    assert (gone.code, "removed" in gone.out) == (0, True)
    assert not Path(busy["folder"]).exists()


@pytest.mark.requirement("cli:servers:clean")
def test_clean_needs_no_process_and_knows_the_librarys_homes(tmp_path: Path):
    homes = Homes(tmp_path / "cache", ("bascule", "homes"))
    for server_id in ("files", "time"):
        home = homes.take(server_id, ["npx", server_id])
        assert home is not None
        (home.path / "package").write_text("x", encoding="utf-8")
        home.leave()
    words = ("servers", "clean", "--json", "--data-dir", str(tmp_path / "data"))
    done = command(*words, "time", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.code == 0, done.err
    assert [home["server_id"] for home in done.json["homes"]] == ["time"]
    assert [home.server_id for home in homes.found()] == ["files"]
    assert not (tmp_path / "data").exists()


@pytest.mark.requirement("cli:servers:clean", "process:fetch-pinned")
def test_clean_forgets_what_servers_are_held_to_only_if_so_asked(tmp_path: Path):
    homes = Homes(tmp_path / "data", ("homes",))
    (tmp_path / "data").mkdir(mode=0o700)
    files: dict[str, Path] = {}
    for server_id in ("files", "time"):
        found = homes.pin_file(server_id, ["uvx", "time"])
        assert found is not None
        found.write_text("{}", encoding="utf-8")
        files[server_id] = found
    words = ("servers", "clean", "time", "--data-dir", str(tmp_path / "data"))
    cache = str(tmp_path / "cache")
    assert command(*words, XDG_CACHE_HOME=cache).out.strip() == "no HOME is kept for time"
    assert files["time"].stat().st_mtime == 0  # newer versions are looked for
    dry = command(*words, "--pins", "--dry-run", "--json", XDG_CACHE_HOME=cache)
    assert (dry.code, dry.json["pins"]) == (0, [str(files["time"])])
    assert files["time"].exists()
    done = command(*words, "--pins", XDG_CACHE_HOME=cache)
    assert (done.code, f"forgot {files['time']}" in done.out) == (0, True)
    assert not files["time"].exists()
    assert files["files"].stat().st_mtime > 0


@pytest.mark.requirement("cli:servers:clean")
def test_clean_says_so_where_nothing_is_kept(tmp_path: Path):
    words = ("servers", "clean", "--data-dir", str(tmp_path / "data"))
    nothing = command(*words, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (nothing.code, nothing.out.strip()) == (0, "no HOME is kept")
    unknown = command(*words, "nobody", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (unknown.code, unknown.out.strip()) == (1, "no HOME is kept for nobody")


def test_the_limits_of_kept_homes_are_settings(tmp_path: Path):
    homes = Homes(tmp_path / "data", ("homes",))
    (tmp_path / "data").mkdir(mode=0o700)
    home = homes.take("time", ["uvx", "time"])
    assert home is not None
    (home.path / "package").write_bytes(b"x" * 1024 * 1024)
    home.leave()
    settings = tmp_path / "bascule.toml"
    settings.write_text("[node]\nhomes_max_mb = 0\n", encoding="utf-8")
    with served(tmp_path / "data", "--empty", "--config", str(settings)) as up:
        while homes.found():
            up.json("servers", "list")
    bad = command(
        "up", "--config", str(settings), "--data-dir", str(tmp_path / "other"), "--dry-run"
    )
    assert bad.code == 0, bad.err
    settings.write_text("[node]\nhomes_max_days = -1\n", encoding="utf-8")
    bad = command(
        "up", "--config", str(settings), "--data-dir", str(tmp_path / "other"), "--dry-run"
    )
    assert bad.code != 0
    assert "homes_max_days" in bad.err + json.dumps(bad.out)
