"""A data directory that has lost its registry is not served as an empty one without a word."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.served import command, process, served


@pytest.fixture(scope="module")
def was_served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("served")
    with served(data) as up:
        assert up("servers", "add", "mine", "--", "true").code == 0
    return data


@pytest.fixture
def left(was_served: Path, tmp_path: Path) -> Path:
    """A data directory that was served."""
    return Path(shutil.copytree(was_served, tmp_path / "data"))


def lose(data: Path) -> None:
    for name in ("registry.db", "registry.db-wal", "registry.db-shm"):
        (data / name).unlink(missing_ok=True)


@pytest.mark.requirement("registry:lost")
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_tokens_without_their_registry_are_not_served(left: Path, how: str):
    lose(left)
    if how == "empty":
        (left / "registry.db").touch()
    words = ("up", "--port", "0", "--data-dir", str(left))
    plain, tried = process(*words), command(*words, "--dry-run")
    as_json = process(*words, "--json")
    for done in (plain, tried, as_json):
        assert done.code == 1
        assert "registry.db is missing or empty" in done.err
        assert "--new-registry" in done.err
    assert '"registry_missing"' in as_json.out
    assert not (left / "registry.db").exists() or how == "empty"


@pytest.mark.requirement("registry:lost")
def test_to_begin_anew_can_be_asked_for_once(left: Path):
    lose(left)
    with served(left, "--new-registry") as up:
        assert "mine" not in up("servers", "list").out
    with served(left):
        pass


def test_tokens_that_are_made_before_the_first_start_are_no_loss(tmp_path: Path):
    data = tmp_path / "data"
    made = command("tokens", "create", "--role", "admin", "--data-dir", str(data))
    assert made.code == 0, made.err
    with served(data):
        pass
    lose(data)
    assert process("up", "--port", "0", "--data-dir", str(data)).code == 1
    command("tokens", "create", "--role", "admin", "--data-dir", str(data))
    assert process("up", "--port", "0", "--data-dir", str(data)).code == 1
