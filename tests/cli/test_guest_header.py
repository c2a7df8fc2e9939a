"""``guests/bascule.h``: what it does with text and JSON, in a guest that is compiled here."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from bascule.doors.hostcalls.abi import IMPORTS, Errno
from checks.guests import GUESTS, ZIG, build
from tests.cli.served import command

HEADER = (GUESTS / "bascule.h").read_text(encoding="utf-8")


def test_it_has_every_error_number_and_every_import():
    numbers = {name: int(text) for name, text in re.findall(r"X\((\w+), (\d+)\)", HEADER)}
    assert numbers == {one.name: int(one) for one in Errno}
    assert set(re.findall(r"^BSC_HOST\((\w+)\)", HEADER, re.MULTILINE)) == set(IMPORTS)


@pytest.mark.skipif(not ZIG.exists(), reason="no zig here (make guests)")
def test_it_reads_and_writes_json(tmp_path: Path):
    source = Path(__file__).with_name("header_test.c")
    for file in (source, GUESTS / "bascule.h"):
        shutil.copy(file, tmp_path)
    (tmp_path / "guest.wasm").write_bytes(build(tmp_path / source.name))
    done = command("run", str(tmp_path / "guest.wasm"))
    assert (done.code, done.out) == (0, "")
