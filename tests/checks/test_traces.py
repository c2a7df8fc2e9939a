"""Traces of one machine: found in any text file; ordinary text is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.traces import traces_in

SLASH = "/"  # the samples are put together here, so that this file does not trip the check


def complaints(folder: Path, text: str, name: str = "a.md") -> list[str]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return list(traces_in(path, folder))


@pytest.mark.parametrize(
    "trace",
    [
        f"see {SLASH}work{SLASH}main",
        f"'{SLASH}root{SLASH}.cache'",
        f"file://{SLASH}home{SLASH}someone{SLASH}x",
        f"path={SLASH}Users{SLASH}someone{SLASH}x",
        "https://files.python" + "hosted.org/packages/a",
        "registry = registry.npm" + "js.org",
        "--index" + "-url https://mirror.example.org",
        "https://mirror.example.org" + SLASH + "simple/",
    ],
)
def test_a_trace_is_named_with_its_line(tmp_path: Path, trace: str):
    [complaint, *_] = complaints(tmp_path, f"fine\n{trace}\n")
    assert complaint.startswith("a.md:2: ")


@pytest.mark.parametrize(
    "text",
    [
        'cwd = "/srv/work"',
        "src/work/main",
        "a network/root/x split",
        "uv pip compile --no-emit-index-url",
        "https://example.org/simpleton",
        "/workspace/file",
    ],
)
def test_ordinary_text_is_left_alone(tmp_path: Path, text: str):
    assert complaints(tmp_path, text) == []


def test_a_lock_file_holds_no_address(tmp_path: Path):
    [complaint] = complaints(tmp_path, "httpx2==1\n--find https://example.org/a\n", "x.lock")
    assert complaint.startswith("x.lock:2: an address in a lock file")


def test_a_file_that_is_not_text_is_passed_over(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"\xff\xfe" + f"{SLASH}work{SLASH}main".encode())
    assert list(traces_in(path, tmp_path)) == []
