"""Which files a confined server is given, and which words say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bascule.errors import LaunchDenied
from bascule.model.sandbox import Level, Sandbox, acceptable
from bascule.node.pool.process import places
from bascule.node.pool.process.confinement.kernel import open_place
from bascule.node.pool.process.plan import Confinement, draw


def test_around_a_hidden_place_everything_else_is_granted(tmp_path: Path):
    hidden = tmp_path / "home" / ".ssh"
    for name in ("home/.ssh", "home/work", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / "link").symlink_to(hidden)
    found = list(places.around(str(tmp_path), [str(hidden)]))
    assert found == [str(tmp_path / "home" / "work"), str(tmp_path / "other")]
    assert list(places.around(str(tmp_path / "other"), [str(hidden)])) == [str(tmp_path / "other")]
    assert list(places.around(str(hidden), [str(hidden)])) == []


def test_a_program_is_given_with_the_folder_it_was_installed_in(tmp_path: Path):
    prefix = tmp_path / "runtime"
    for name in ("bin", "lib"):
        (prefix / name).mkdir(parents=True)
    program = prefix / "bin" / "tool"
    program.write_text("#!/bin/sh\n", encoding="ascii")
    entry = tmp_path / "entry"
    entry.mkdir()
    (entry / "tool").symlink_to(program)
    found, links = places.program_places([str(entry / "tool")], os.defpath, ())
    assert str(prefix) in found
    assert (str(entry / "tool"), str(program)) in links
    narrow, _ = places.program_places([str(program)], os.defpath, [str(prefix / "keys")])
    assert str(prefix) not in narrow
    assert str(prefix / "bin") in narrow


def test_a_link_that_appears_on_the_way_to_a_grant_is_refused(tmp_path: Path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "granted").symlink_to(tmp_path / "secret")
    os.close(open_place(str(tmp_path / "secret")))
    with pytest.raises(OSError, match="symbolic links"):
        open_place(str(tmp_path / "granted"))


def test_keys_of_the_user_and_of_the_node_are_never_granted(tmp_path: Path):
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/1"}
    never = places.never_granted(environ, [str(tmp_path / "data")])
    inside = (tmp_path / ".ssh", tmp_path / ".mozilla", tmp_path / "data", Path("/run/user/1"))
    assert {str(path) for path in inside} <= set(never)
    (tmp_path / ".ssh" / "keys").mkdir(parents=True)
    confinement = Confinement(
        Sandbox(read=(str(tmp_path / ".ssh" / "keys"),)), (str(tmp_path / "own"),), never
    )
    with pytest.raises(LaunchDenied, match=r"sandbox\.read\[0\].*which no server sees"):
        draw(confinement, "namespaces", ["/bin/sh"], None, os.defpath)


@pytest.mark.parametrize(
    ("level", "required", "expected"),
    [
        ("none", False, ("none",)),
        ("limits", False, ("limits",)),
        ("landlock", False, ("landlock", "limits")),
        ("landlock", True, ("landlock",)),
        ("bwrap", False, ("bwrap", "namespaces", "landlock", "limits")),
        ("best", True, ("namespaces", "bwrap", "landlock")),
        ("best", False, ("namespaces", "bwrap", "landlock", "limits")),
    ],
)
def test_a_sandbox_that_was_asked_for_never_becomes_none(
    level: Level, required: bool, expected: tuple[Level, ...]
):
    assert acceptable(Sandbox(level=level, required=required)) == expected
