"""HOMEs that stay: whose they are, who else may not have them, and when they go."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from bascule.errors import ServerUnavailable
from bascule.node.homes import Home, Homes, launch_key, user_homes
from bascule.testing import FakeClock

ARGV = ("/usr/bin/uvx", "mcp-server-time")
MB = 1024 * 1024


def taken(homes: Homes, server_id: str = "time", argv: tuple[str, ...] = ARGV) -> Home:
    home = homes.take(server_id, argv)
    assert home is not None
    return home


def filled(homes: Homes, server_id: str, megabytes: int = 1) -> None:
    """Let a server run that leaves something behind."""
    home = taken(homes, server_id)
    (home.path / "package").write_bytes(b"x" * megabytes * MB)
    home.leave()


def kept(homes: Homes) -> list[str]:
    return sorted(home.server_id for home in homes.found())


@pytest.mark.requirement("process:home:kept")
def test_a_server_started_alike_finds_what_it_left(tmp_path: Path):
    first = taken(Homes(tmp_path))
    (first.path / "fetched").write_text("a package", encoding="utf-8")
    first.leave()
    second = taken(Homes(tmp_path))
    assert second.path == first.path
    assert (second.path / "fetched").read_text(encoding="utf-8") == "a package"
    second.leave()


@pytest.mark.requirement("process:home:kept")
def test_another_server_or_another_launch_has_another_home(tmp_path: Path):
    homes = Homes(tmp_path)
    others = [
        taken(homes, "files"),
        taken(homes, argv=(*ARGV, "--utc")),
        taken(homes, argv=ARGV[:1]),
    ]
    paths = {home.path for home in (taken(homes), *others)}
    assert len(paths) == 4
    assert launch_key(("a", "b c")) != launch_key(("a b", "c"))


@pytest.mark.requirement("process:home:private")
def test_every_folder_on_the_way_is_its_owners_alone(tmp_path: Path):
    loose = tmp_path / "bascule" / "homes"
    loose.mkdir(parents=True)
    loose.chmod(0o777)
    path = taken(Homes(tmp_path, ("bascule", "homes"))).path
    folders = [folder for folder in (path, *path.parents) if folder.is_relative_to(loose)]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 4


@pytest.mark.requirement("process:home:private")
@pytest.mark.parametrize(
    "at",
    [
        ("bascule",),
        ("bascule", "homes"),
        ("bascule", "homes", "time"),
        ("bascule", "homes", "time", launch_key(ARGV)),
        ("bascule", "homes", "time", launch_key(ARGV), "home"),
    ],
)
@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_link_or_a_file_in_the_place_of_a_folder_is_refused(
    tmp_path: Path, at: tuple[str, ...], planted: str
):
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = cache.joinpath(*at)
    place.parent.mkdir(parents=True)
    if planted == "link":
        place.symlink_to(elsewhere)
    else:
        place.write_text("", encoding="utf-8")
    with pytest.raises(ServerUnavailable, match="temporary") as caught:
        Homes(cache, ("bascule", "homes")).take("time", ARGV)
    assert caught.value.reason == "launch_denied"
    assert str(place) in str(caught.value)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.requirement("process:home:private")
def test_a_place_that_everybody_may_write_to_is_refused_unless_it_is_sticky(tmp_path: Path):
    tmp_path.chmod(0o777)
    with pytest.raises(ServerUnavailable, match="everybody"):
        Homes(tmp_path).take("time", ARGV)
    tmp_path.chmod(0o1777)
    taken(Homes(tmp_path)).leave()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path):
    homes = Homes(tmp_path)
    target = tmp_path / "target"
    home = taken(homes)
    (home.path.parent / "used").unlink()
    (home.path.parent / "used").symlink_to(target)
    assert homes.take("time", ARGV) is None
    assert not target.exists()


def test_where_no_folder_can_be_made_nothing_is_kept(tmp_path: Path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert Homes(tmp_path / "file").take("time", ARGV) is None


@pytest.mark.requirement("process:home:kept")
def test_a_home_in_which_nothing_was_left_does_not_stay(tmp_path: Path):
    homes = Homes(tmp_path)
    taken(homes).leave()
    assert (kept(homes), list(homes.root.iterdir())) == ([], [])


def test_leaving_a_home_twice_does_no_harm(tmp_path: Path):
    home = taken(Homes(tmp_path))
    home.leave()
    home.leave()


@pytest.mark.requirement("process:home:shared")
def test_a_home_in_use_by_two_stays_until_both_have_left(tmp_path: Path):
    here, there = Homes(tmp_path), Homes(tmp_path)
    first, second = taken(here), taken(there)
    assert first.path == second.path
    first.leave()
    (found,) = there.found()
    assert found.in_use
    assert not there.remove(found)
    assert second.path.is_dir()
    second.leave()
    assert kept(there) == []


@pytest.mark.requirement("process:home:limits")
def test_what_nobody_used_for_the_days_allowed_goes_at_the_sweep(tmp_path: Path):
    clock = FakeClock()
    homes = Homes(tmp_path, max_days=30, clock=clock)
    filled(homes, "old")
    clock.jump(20 * 86_400)
    filled(homes, "newer")
    clock.jump(11 * 86_400)
    assert [home.server_id for home in homes.sweep()] == ["old"]
    assert kept(homes) == ["newer"]


@pytest.mark.requirement("process:home:limits")
def test_beyond_the_size_allowed_those_unused_for_longest_go(tmp_path: Path):
    clock = FakeClock()
    homes = Homes(tmp_path, max_mb=5, clock=clock)
    for server_id in ("a", "b", "c"):
        filled(homes, server_id, megabytes=2)
        clock.jump(60)
    assert [home.server_id for home in homes.sweep()] == ["a"]
    clock.jump(60)
    filled(homes, "b", megabytes=4)
    assert [home.server_id for home in homes.sweep()] == ["c"]
    assert kept(homes) == ["b"]


@pytest.mark.requirement("process:home:limits")
def test_a_sweep_leaves_what_is_in_use_and_ends_when_told_to(tmp_path: Path):
    homes = Homes(tmp_path, max_mb=0)
    filled(homes, "idle")
    filled(homes, "busy")
    using = taken(homes, "busy")
    assert homes.sweep(stop=lambda: True) == []
    assert [home.server_id for home in homes.sweep()] == ["idle"]
    using.leave()


def test_a_file_with_two_names_counts_once(tmp_path: Path):
    homes = Homes(tmp_path)
    home = taken(homes)
    (home.path / "cached").write_bytes(b"x" * MB)
    (home.path / "installed").hardlink_to(home.path / "cached")
    home.leave()
    (found,) = homes.found()
    assert MB <= found.bytes < 2 * MB


def test_folders_that_a_package_cache_closed_to_writing_go_too(tmp_path: Path):
    homes = Homes(tmp_path)
    home = taken(homes)
    (home.path / "closed").mkdir()
    (home.path / "closed" / "file").write_text("x", encoding="utf-8")
    (home.path / "closed").chmod(0o500)
    home.leave()
    (found,) = homes.found()
    assert homes.remove(found)
    assert list(homes.root.iterdir()) == []


def test_what_a_killed_process_had_begun_to_remove_goes_at_the_next_sweep(tmp_path: Path):
    homes = Homes(tmp_path)
    filled(homes, "time")
    (folder,) = (home.folder for home in homes.found())
    folder.rename(folder.with_name(".gone-half"))
    homes.sweep()
    assert kept(homes) == []
    assert list((homes.root / "time").iterdir()) == []


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/bascule/homes"),
        ({"HOME": "/h"}, "/h/.cache/bascule/homes"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/bascule/homes"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/bascule/homes"),
        ({}, None),
    ],
)
def test_the_library_keeps_homes_in_the_users_cache_folder(
    environ: dict[str, str], root: str | None
):
    found = user_homes(environ)
    assert (None if found is None else str(found.root)) == root


@pytest.mark.requirement("process:home:offline")
def test_what_came_up_is_believed_to_be_complete_for_a_day(tmp_path: Path):
    clock = FakeClock()
    home = taken(Homes(tmp_path, clock=clock))
    assert not home.complete
    home.came_up()
    assert home.complete
    clock.jump(86_400)
    assert not home.complete
    home.came_up()
    home.forget()
    home.forget()
    assert not home.complete
    home.leave()


@pytest.mark.requirement("process:home:offline")
def test_what_came_up_once_is_believed_for_an_hour_where_there_is_nothing_else(tmp_path: Path):
    clock = FakeClock()
    home = taken(Homes(tmp_path, clock=clock))
    assert not home.postpone()  # it never came up: there is nothing to believe in
    home.came_up()
    clock.jump(90_000)
    assert (home.complete, home.postpone(), home.complete) == (False, True, True)
    clock.jump(3_601)
    assert not home.complete
    home.forget()
    assert (home.complete, home.postpone(), home.complete) == (False, True, True)
    home.leave()


@pytest.mark.requirement("process:home:shared")
def test_a_home_is_taken_whole_however_often_others_remove_what_is_idle(tmp_path: Path):
    """A sweep that allows nothing runs beside servers that start and end."""
    homes, over = Homes(tmp_path, max_mb=0, max_days=0), threading.Event()

    def sweep_on() -> None:
        while not over.is_set():
            homes.sweep()

    sweeping = threading.Thread(target=sweep_on)
    sweeping.start()
    try:
        for _ in range(40):
            home = taken(homes)
            (home.path / "package").write_text("x", encoding="utf-8")
            assert (home.path / "package").is_file()
            home.leave()
    finally:
        over.set()
        sweeping.join()
