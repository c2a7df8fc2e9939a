"""The messages are what proto/ gives, and no change of it breaks who speaks the released form."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from checks import protobuf

RECORDS = "bascule/registry/v1/records.proto"


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    assert protobuf.BIN.exists(), "the tools are not there: run `make .venv-proto/.stamp`"
    return shutil.copytree(protobuf.PROTO, tmp_path / "proto")


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    return shutil.copytree(protobuf.MESSAGES, tmp_path / "pb")


def edited(proto: Path, old: str, new: str) -> Path:
    path = proto / RECORDS
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return proto


@pytest.mark.requirement("record:formats:protobuf-compatible")
def test_what_is_added_breaks_nobody(proto: Path):
    last = "  repeated string scopes = 6;\n"
    assert protobuf.check(edited(proto, last, last + "  optional string colour = 7;\n")) == 0


@pytest.mark.requirement("record:formats:protobuf-compatible")
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("  optional string cwd = 5;\n", "", '"cwd"'),
        ("optional string cwd = 5;", "optional string folder = 5;", '"folder"'),
        ("optional string cwd = 5;", "optional string cwd = 50;", '"cwd"'),
        ("optional bool prewarm = 10;", "optional string prewarm = 10;", "prewarm"),
    ],
)
def test_what_breaks_somebody_is_named(
    old: str, new: str, found: str, proto: Path, capfd: pytest.CaptureFixture[str]
):
    assert protobuf.check(edited(proto, old, new)) != 0
    assert found in capfd.readouterr().out


def test_what_offends_the_style_is_named(proto: Path, capfd: pytest.CaptureFixture[str]):
    last = "  repeated string scopes = 6;\n"
    assert protobuf.check(edited(proto, last, last + "  optional string theColour = 7;\n")) != 0
    assert "theColour" in capfd.readouterr().out


def test_messages_that_are_up_to_date_pass(proto: Path, messages: Path):
    assert protobuf.stale(protobuf.generated(proto), messages) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda folder: (folder / "errors_pb2.py").write_text("", "utf-8"), "pb/errors_pb2.py:"),
        (lambda folder: (folder / "errors_pb2.pyi").unlink(), "pb/errors_pb2.pyi:"),
        (lambda folder: (folder / "older_pb2.py").write_text("", "utf-8"), "pb/older_pb2.py:"),
    ],
)
def test_messages_that_are_not_up_to_date_are_named(
    change: Callable[[Path], object], found: str, proto: Path, messages: Path
):
    change(messages)
    (complaint,) = protobuf.stale(protobuf.generated(proto), messages)
    assert complaint.startswith(found)
    assert "make generate" in complaint


def test_messages_load_with_the_oldest_runtime_without_a_warning():
    assert protobuf.load(protobuf.MESSAGES) == 0
