"""The server's key: in a file or given, and one of them alone if they differ."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from bascule.auth.keys import KeyLabel, derived
from bascule.auth.server_key import KEY_NAME, VARIABLE, fingerprint, given_key, server_key
from bascule.db.private_files import KeyUnusable, write_private

KEY = bytes(range(32))
OTHER = b"\xff" * 32


def test_the_key_is_made_once_and_kept_private(tmp_path: Path):
    path = tmp_path / KEY_NAME
    key = server_key(path, {})
    assert len(key) == 32
    assert server_key(path, {}) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_two_processes_that_make_a_key_the_first_wins(tmp_path: Path):
    path = tmp_path / KEY_NAME
    write_private(path, b"1" * 32, replace=False)
    write_private(path, b"2" * 32, replace=False)
    assert server_key(path, {}) == b"1" * 32
    assert [entry.name for entry in tmp_path.iterdir()] == [KEY_NAME]


def test_a_key_that_others_may_read_or_that_is_cut_is_refused(tmp_path: Path):
    path = tmp_path / KEY_NAME
    server_key(path, {})
    path.chmod(0o640)
    with pytest.raises(KeyUnusable, match="chmod 600"):
        server_key(path, {})
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(KeyUnusable, match="not a key"):
        server_key(path, {})


@pytest.mark.requirement("security:server-key")
@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        base64.b64encode(KEY).decode(),
        base64.urlsafe_b64encode(KEY).decode().rstrip("="),
    ],
)
def test_a_key_that_is_given_makes_no_file(tmp_path: Path, text: str):
    environ = {VARIABLE: text}
    assert server_key(tmp_path / KEY_NAME, environ) == KEY
    assert server_key(tmp_path / KEY_NAME, environ) == KEY, "every part of a process may ask"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.requirement("security:server-key")
@pytest.mark.parametrize(
    "text",
    [
        *("", "correct horse battery staple", "x" * 32, "x" * 43, "z" * 64, KEY.hex() + "\n"),
        *(KEY.hex()[:-2], KEY.hex() + "00", base64.b64encode(KEY[:-1]).decode()),
    ],
)
def test_anything_but_32_encoded_bytes_is_refused_and_not_repeated(tmp_path: Path, text: str):
    with pytest.raises(KeyUnusable, match=f"{VARIABLE}: is not a key: exactly 32") as caught:
        server_key(tmp_path / KEY_NAME, {VARIABLE: text})
    assert not text or text not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.requirement("security:server-key")
def test_a_key_that_is_given_and_another_in_the_file_are_refused(tmp_path: Path):
    path = tmp_path / KEY_NAME
    write_private(path, KEY)
    assert server_key(path, {VARIABLE: KEY.hex()}) == KEY
    with pytest.raises(KeyUnusable, match="two different keys") as caught:
        server_key(path, {VARIABLE: OTHER.hex()})
    assert str(path) in str(caught.value)
    assert OTHER.hex() not in str(caught.value)
    assert path.read_bytes() == KEY


def test_a_key_that_is_nowhere_is_not_made_by_looking_for_it(tmp_path: Path):
    assert given_key(tmp_path / KEY_NAME, {}) is None
    assert given_key(tmp_path / KEY_NAME, {VARIABLE: KEY.hex()}) == KEY
    assert [*tmp_path.iterdir()] == []


@pytest.mark.requirement("security:tokens:derived-keys")
def test_a_fingerprint_tells_keys_apart_and_is_no_key_of_any_use():
    assert fingerprint(KEY) == fingerprint(KEY) != fingerprint(OTHER)
    labels: tuple[KeyLabel, ...] = ("token-digest", "token-row", "mcp-session", "cursor", "journal")
    used = {KEY.hex(), *(derived(KEY, label).hex() for label in labels)}
    assert fingerprint(KEY) not in used
