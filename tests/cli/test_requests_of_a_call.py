"""How much ``bascule tools call`` asks of a running process: requests, and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.served import Served, command, served
from tests.cli.test_tools_elsewhere import client_token

PROOF = "GET /api/v1/instance"
CALL = "POST /api/v1/tools/call"
WORDS = ("tools", "call", "notes/read_note", "--arg", "name=welcome")


class Counted:
    """A process that serves, and what was asked of it."""

    def __init__(self, up: Served, path: Path) -> None:
        self.up = up
        self._path = path
        self._seen = 0

    def asked(self) -> list[tuple[str, str]]:
        """Return what was asked since the last time, each with its token."""
        lines = self._path.read_text(encoding="utf-8").splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        return [(request, token) for request, _, token in (line.rpartition(" ") for line in new)]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    data, path = tmp_path_factory.mktemp("up"), tmp_path_factory.mktemp("log") / "requests"
    path.touch()
    with served(data, program=("tests.cli.counted", str(path))) as up:
        yield Counted(up, path)


def test_a_call_proves_the_process_and_calls_with_one_token(counted: Counted):
    counted.asked()
    done = counted.up(*WORDS)
    assert done.code == 0, done.err
    asked = counted.asked()
    assert [request for request, _ in asked] == [PROOF, CALL]
    assert [token for request, token in asked if request == PROOF] == ["none"]
    assert len({token for _, token in asked} - {"none"}) == 1


def test_a_call_with_a_token_of_ones_own_asks_whose_it_is_and_calls(
    counted: Counted, tmp_path: Path
):
    token = client_token(counted.up.data, "demo")
    counted.asked()
    where = ("--url", counted.up.url, "--token", token, "--data-dir", str(tmp_path))
    assert command(*WORDS, *where).code == 0
    assert counted.asked() == [("GET /api/v1/identity", token), (CALL, token)]


def test_a_default_task_that_is_gone_is_chosen_again(counted: Counted):
    default = counted.up.data / "default-task"
    before = default.read_text(encoding="utf-8")
    default.write_text("gone\n", encoding="utf-8")
    counted.asked()
    done = counted.up(*WORDS)
    default.write_text(before, encoding="utf-8")
    assert done.code == 0, done.err
    requests = [request for request, _ in counted.asked()]
    assert requests.count(CALL) == 2  # the first is refused before a tool is reached
    assert "GET /admin/api/mcp/tasks" in requests
