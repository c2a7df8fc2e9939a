"""What no record reads, whatever the lists say, and what setting one list closes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from bascule.errors import LaunchDenied
from bascule.model.secret_use import SecretUse
from bascule.outbound.private_files import is_private, is_private_file
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeLists, NodeRules

USE = SecretUse("server", "fs", "")
ENVIRON = {"BASCULE_TOKEN": "bsc_secret", "OTHER": "other", "PATH": "/bin"}


class Machine:
    """A data directory with a key in it, and a folder beside it that anybody may write to."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.beside = folder / "beside"
        self.key = self.data / "setup-token"
        self.beside.mkdir()
        (self.data / "inner").mkdir(parents=True)
        self.key.write_text("bsc_key", encoding="utf-8")
        (self.data / "inner" / "other").write_text("bsc_other", encoding="utf-8")
        (self.beside / "fine").write_text("fine", encoding="utf-8")

    def reading(self, *files: str) -> Reading:
        rules = NodeRules(files=files or None, private=(str(self.data),))
        return Reading(rules, ENVIRON, None, USE)

    def spellings(self) -> list[str]:
        """Return ways to write the path of the key."""
        (self.beside / "link").symlink_to(self.key)
        (self.beside / "folder").symlink_to(self.data)
        (self.beside / "hard").hardlink_to(self.key)
        (self.beside / "inner-hard").hardlink_to(self.data / "inner" / "other")
        return [
            str(self.key),
            f"{self.beside}/link",
            f"{self.beside}/folder/setup-token",
            f"{self.beside}/../data/setup-token",
            f"{self.data}/./inner/../setup-token",
            f"/proc/self/root{self.key}",
            f"/proc/{os.getpid()}/root{self.key}",
            f"{self.beside}/hard",
            f"{self.beside}/inner-hard",
            f"{self.data}/inner/other",
            f"{self.data}/not-there-yet",
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.requirement("security:own-files")
@pytest.mark.parametrize("files", [(), ("*",), ("/*",)])
async def test_the_data_directory_is_never_read_however_it_is_spelled(
    machine: Machine, files: tuple[str, ...]
):
    for path in machine.spellings():
        with pytest.raises(LaunchDenied, match="Bascule's own"):
            await machine.reading(*files).value(f"file://{path}", "stdio.env.X")
        with pytest.raises(LaunchDenied, match="Bascule's own"):
            await machine.reading(*files).path(path, "http.tls.client_key")
        with pytest.raises(LaunchDenied, match="Bascule's own"):
            await machine.reading(*files).path(f"file://{path}", "http.tls.ca")
    fine = f"file://{machine.beside}/fine"
    assert await machine.reading(*files).value(fine, "stdio.env.X") == "fine"


@pytest.mark.requirement("security:own-files")
@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/environ", "/proc/self/cmdline"])
async def test_the_variables_of_a_process_are_not_read_as_a_file(machine: Machine, path: str):
    for files in ((), ("*",)):
        with pytest.raises(LaunchDenied, match="running system"):
            await machine.reading(*files).value(f"file://{path}", "stdio.env.X")


def test_a_file_that_was_swapped_after_it_was_asked_about_is_known_when_it_is_open(
    machine: Machine,
):
    places = (str(machine.data),)
    assert is_private_file(machine.key.stat(), places)
    assert not is_private_file((machine.beside / "fine").stat(), places)
    assert is_private(str(machine.data), places)
    assert not is_private(str(machine.beside), places)
    assert not is_private("/no/such/file", ("/no/such/folder",))


def test_a_key_outside_the_data_directory_is_private_by_itself(machine: Machine):
    key = machine.beside / "fine"
    assert is_private(str(key), (str(key),))
    assert not is_private(str(machine.beside / "other"), (str(key),))


@pytest.mark.requirement("security:own-variables")
@pytest.mark.parametrize("text", ["${ENV:BASCULE_TOKEN}", "a ${BASCULE_TOKEN:-x}", "${bascule_x}"])
async def test_our_own_variables_are_never_read(text: str):
    for variables in (None, ("*",), ("BASCULE_*",), ("BASCULE_TOKEN",)):
        reading = Reading(NodeRules(variables=variables), ENVIRON, None, USE)
        for read in (reading.value, reading.credential):
            with pytest.raises(LaunchDenied, match="Bascule's own"):
                await read(text, "stdio.env.X")
        with pytest.raises(LaunchDenied, match="Bascule's own"):
            reading.text(text, "stdio.args[0]")


# The lists


@pytest.mark.requirement("security:lists-close-one-another")
@pytest.mark.parametrize("entries", [("*",), ()])
def test_setting_one_list_closes_the_others(entries: tuple[str, ...]):
    for given in ("variables", "executables", "files", "guests"):
        rules = replace(NodeRules(), **{given: entries})
        allowed = {
            "variables": rules.allows_variable("OTHER"),
            "executables": rules.listed_executables() != (),
            "files": rules.allows_file("/etc/hosts"),
            "guests": rules.allows_guest("/srv/guest.wasm"),
        }
        assert allowed == {name: name == given and bool(entries) for name in allowed}
        assert rules.allows_variable("PATH")


def test_without_any_list_there_is_no_rule():
    rules = NodeRules(egress=("10.0.0.0/8",))
    assert rules.allows_variable("OTHER")
    assert rules.allows_file("/etc/hosts")
    assert rules.allows_guest("/srv/guest.wasm")
    assert rules.listed_executables() is None
    assert rules.closed() is None


def test_what_one_list_closes_is_said():
    assert NodeLists(executables=("uvx",)).closed() == (
        "[node] executables is set, so records may read no variable but PATH and read no file and "
        "run no WASM module; list what they may in [node] variables and files and guests"
    )
    assert NodeLists(variables=(), files=(), guests=()).closed() == (
        "[node] variables and files and guests are set, so records may start no program; "
        "list what they may in [node] executables"
    )
    assert NodeLists(variables=(), files=(), executables=(), guests=()).closed() is None
