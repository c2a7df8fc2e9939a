"""No token is shown to a process that does not hold the data directory's lock."""

from __future__ import annotations

import fcntl
import shutil
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bascule.app.data_dir import owner_key, proof_of, served_alone
from tests.cli.served import END_SECONDS, Served, command, served

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
FORGED = b'{"proof": "00", "servers": [], "revision": 1}'


class Squatter:
    """Somebody who has taken a port, and writes down all that is sent to it."""

    def __init__(self, pass_on: int | None) -> None:
        self._pass_on = pass_on
        self.heard = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            with caller:
                text = caller.recv(65536)
                self.heard += text
                caller.sendall(self._answer(text))

    def _answer(self, text: bytes) -> bytes:
        if self._pass_on is None:
            return ANSWER % (len(FORGED), FORGED)
        with socket.create_connection(("127.0.0.1", self._pass_on)) as real:
            real.sendall(text)
            answer = b""
            while not answer.endswith(b"}"):
                answer += real.recv(65536)
            return answer


@contextmanager
def squatter(pass_on: int | None = None) -> Generator[Squatter]:
    made = Squatter(pass_on)
    try:
        yield made
    finally:
        made.close()


def silent(heard: bytes) -> bool:
    return b"authorization" not in heard.lower() and b"bsc_" not in heard


@pytest.fixture(scope="module")
def was_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("killed")
    with served(data) as up:
        up.serving.kill()
        up.serving.wait(END_SECONDS)
    return data


@pytest.fixture
def left(was_killed: Path, tmp_path: Path) -> Path:
    """A data directory with tokens, whose process was killed."""
    return Path(shutil.copytree(was_killed, tmp_path / "data"))


@pytest.mark.requirement("security:data-directory:impostor")
def test_the_next_owner_of_the_lock_takes_the_old_address_away_first(left: Path):
    assert (left / "url").exists()
    with served_alone(left):
        assert not (left / "url").exists()


@pytest.mark.requirement("security:data-directory:impostor")
def test_whoever_has_the_port_of_a_killed_process_is_shown_no_token(left: Path):
    """The lock is held again, by a process that does not serve yet."""
    with squatter() as thief, (left / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (left / "url").write_text(thief.url, encoding="utf-8")
        done = command("servers", "list", "--data-dir", str(left), "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "not_serving")
    assert thief.url in done.err
    assert silent(thief.heard)


@pytest.mark.parametrize("words", [("--token", "bsc_mine"), ("--url", "THIEF")])
@pytest.mark.requirement("security:data-directory:impostor")
def test_a_token_that_was_given_is_not_shown_to_an_impostor_either(
    left: Path, words: tuple[str, ...]
):
    with squatter() as thief, served_alone(left):
        (left / "url").write_text(thief.url, encoding="utf-8")
        given = [thief.url if word == "THIEF" else word for word in words]
        done = command("servers", "list", "--data-dir", str(left), *given)
    assert done.code == 1
    assert silent(thief.heard)


@pytest.mark.requirement("security:data-directory:impostor")
def test_the_owners_proof_passed_on_by_another_port_proves_nothing(tmp_path: Path):
    with served(tmp_path) as up, squatter(int(up.url.rpartition(":")[2])) as thief:
        own = up.url
        (tmp_path / "url").write_text(thief.url, encoding="utf-8")
        done = up("servers", "list")
        assert done.code == 1
        assert "another program answers" in done.err
        assert b"/api/v1/instance" in thief.heard
        assert silent(thief.heard)
        (tmp_path / "url").write_text(own, encoding="utf-8")
        assert up("servers", "list").code == 0


def test_an_address_is_believed_only_while_its_lock_is_held(left: Path):
    with squatter() as thief:
        (left / "url").write_text(thief.url, encoding="utf-8")
        done = command("servers", "list", "--data-dir", str(left))
    assert "has ended" in done.err
    assert thief.heard == b""


def test_a_key_is_the_owners_while_it_holds_the_lock_and_another_each_time(tmp_path: Path):
    with served_alone(tmp_path):
        first = owner_key(tmp_path)
    assert owner_key(tmp_path) is None
    with served_alone(tmp_path):
        second = owner_key(tmp_path)
    assert first is not None
    assert second is not None
    assert first != second
    assert proof_of(first, "a", 1) not in {proof_of(first, "a", 2), proof_of(second, "a", 1)}


@pytest.mark.parametrize("nonce", ["", "?nonce=", "?nonce=xyz", "?nonce=" + "0" * 65])
def test_a_challenge_that_is_none_is_refused(up_once: Served, nonce: str):
    port = int(up_once.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as asking:
        asking.sendall(f"GET /api/v1/instance{nonce} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert asking.recv(65536).startswith(b"HTTP/1.1 400")


@pytest.fixture(scope="module")
def up_once(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("up")) as up:
        yield up
