"""The page's build: what it must not have in it is named, and so is what is not up to date."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from checks import web
from checks.tree import ROOT

CHUNKS = {
    "index.html": {"file": "bascule.js", "imports": ["_part.js"]},
    "_part.js": {"file": "part.js", "imports": ["index.html"]},
    "Audit.svelte": {"file": "Audit.js", "imports": ["index.html"], "isDynamicEntry": True},
    "Playground.svelte": {"file": "Playground.js", "isDynamicEntry": True},
    "Tools.svelte": {"file": "Tools.js", "imports": ["_rows.js"], "isDynamicEntry": True},
    "_rows.js": {"file": "rows.js", "imports": ["index.html"]},
    "style.css": {"file": "style.css"},
}
ENTRY = b'<link href="./icon.svg"><script src="./bascule.js"></script><link href="./style.css">'
AT_ONCE = {"index.html", "icon.svg", "bascule.js", "style.css", "part.js"}
FILES = (*AT_ONCE, "Audit.js", "Playground.js", "Tools.js", "rows.js")


def build(**other: bytes) -> dict[str, bytes]:
    return (
        dict.fromkeys(FILES, b"")
        | {"index.html": ENTRY}
        | {name.replace("_", "."): content for name, content in other.items()}
    )


def manifest(chunks: object = CHUNKS) -> bytes:
    return json.dumps(chunks).encode()


@pytest.mark.requirement("admin:page:weight")
def test_the_first_load_is_what_the_entry_names_and_imports_and_one_screen():
    assert web.first_load(build(), manifest()) == AT_ONCE
    with_tools = web.first_load(build(), manifest(), "Tools.svelte")
    assert with_tools == {*AT_ONCE, "Tools.js", "rows.js"}
    assert list(web.weight_complaints(build(), manifest())) == []


@pytest.mark.requirement("admin:page:weight")
def test_a_heavy_first_load_is_weighed_as_it_travels():
    noise = Random(1).randbytes(web.FIRST_LOAD_BYTES)
    assert list(web.weight_complaints(build(Audit_js=noise), manifest())) == []
    assert list(web.weight_complaints(build(part_js=b"0" * 10 * len(noise)), manifest())) == []
    for heavy in ({"part_js": noise}, {"style_css": noise}, {"rows_js": noise}):
        [complaint] = web.weight_complaints(build(**heavy), manifest())
        assert "the first load is" in complaint


def test_a_screen_that_should_come_later_and_does_not_is_named():
    eager = {**CHUNKS, "_part.js": {"file": "part.js", "imports": ["Audit.svelte"]}}
    [complaint] = web.weight_complaints(build(), manifest(eager))
    assert complaint.startswith("Audit.js: ")


@pytest.mark.parametrize(
    "content",
    [
        b'"https://cdn.elsewhere.net/x.js"',
        b"url(//fonts.elsewhere.net/a)",
        b"new WebSocket('ws://a.elsewhere.net')",
    ],
)
def test_an_address_of_another_host_is_named(content: bytes):
    [complaint] = web.address_complaints(build(part_js=content))
    assert complaint.startswith("part.js: an address of another host")


def test_names_that_look_like_addresses_and_examples_are_let_be():
    content = (
        b'"http://www.w3.org/2000/svg" "https://svelte.dev/e/x" "http://127.0.0.1:7070/admin/"'
    )
    assert list(web.address_complaints(build(part_js=content))) == []


@pytest.mark.parametrize("line", ["{@html words}", '<p style="color: red">', "<p style={one}>"])
def test_markup_that_the_policy_refuses_is_named_with_its_line(tmp_path: Path, line: str):
    (tmp_path / "web" / "src").mkdir(parents=True)
    (tmp_path / "web" / "src" / "A.svelte").write_text(
        f"<p style:color={{one}}>\n{line}\n", encoding="utf-8"
    )
    [complaint] = web.source_complaints(tmp_path / "web")
    assert complaint.startswith("web/src/A.svelte:2: ")


@pytest.mark.parametrize("package", [{"integrity": "sha512-x", "resolved": "there"}, {}])
def test_a_lock_has_digests_and_no_addresses(tmp_path: Path, package: dict[str, str]):
    lock = tmp_path / "package-lock.json"
    lock.write_text(json.dumps({"packages": {"": {}, "node_modules/a": package}}), encoding="utf-8")
    [complaint] = web.lock_complaints(lock)
    assert "node_modules/a" in complaint
    assert list(web.lock_complaints(ROOT / "web" / "package-lock.json")) == []


def test_what_is_not_as_built_is_named_until_it_is_written(tmp_path: Path):
    built = {"index.html": b"new", "a.js": b"same"}
    for name, content in {"index.html": b"old", "a.js": b"same", "gone.js": b""}.items():
        (tmp_path / name).write_bytes(content)
    old = web.differences(built, web.read_files(tmp_path))
    assert [complaint.split(":")[0].rpartition("/")[2] for complaint in old] == [
        "gone.js",
        "index.html",
    ]
    assert web.write(built, tmp_path) == ["gone.js", "index.html"]
    assert web.differences(built, web.read_files(tmp_path)) == []
