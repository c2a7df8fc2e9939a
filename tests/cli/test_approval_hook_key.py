"""``bascule approvals hook-key``: one key for a data directory, for its owner alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bascule.cli.approval_hook_key import add
from bascule.cli.parser import Parser, actions_of
from bascule.control.approval_hook import KEY_FILE, hook_key
from bascule.db.private_files import KeyUnusable


def printed(data: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    parser = Parser()
    add(actions_of(parser))
    arguments = parser.parse_args(["hook-key", "--data-dir", str(data), *words])
    assert arguments.run(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.requirement("approval:hook:key")
def test_the_key_is_made_once_and_printed_as_receivers_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = tmp_path / "data"
    first = printed(data, capsys)
    assert bytes.fromhex(first) == hook_key(data)
    assert len(bytes.fromhex(first)) == 32
    assert printed(data, capsys) == first
    assert json.loads(printed(data, capsys, "--json")) == {"key": first.strip()}
    assert (data / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert hook_key(tmp_path / "other") != hook_key(data)


def test_a_key_that_others_can_read_is_refused_with_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    printed(tmp_path, capsys)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(KeyUnusable, match="chmod 600"):
        printed(tmp_path, capsys)
