"""Links in Markdown: which are looked at, and which lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.links import anchors, broken_links, targets


def complaints(folder: Path, text: str) -> list[str]:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return list(broken_links(page, folder))


def test_a_link_to_a_file_that_is_there_is_fine(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a b.md").write_text("# Title\n", encoding="utf-8")
    text = "[x](docs/a%20b.md) [y](docs) [z](docs/a%20b.md#title)\n\n[w]: docs\n"
    assert complaints(tmp_path, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "[x](missing.md)",
        "![picture](missing.md)",
        '[x](missing.md "with a title")',
        "[x]\n\n[x]: missing.md\n",
    ],
)
def test_a_link_to_nothing_is_named(tmp_path: Path, text: str):
    [complaint] = complaints(tmp_path, text)
    assert complaint == "page.md: link to missing.md: no such file"


def test_a_heading_that_is_not_there_is_named(tmp_path: Path):
    assert complaints(tmp_path, "# Here\n[a](#here)\n") == []
    [complaint] = complaints(tmp_path, "# Here\n[a](#there)\n")
    assert complaint == "page.md: link to #there: no such heading"


def test_links_elsewhere_and_links_in_code_are_not_followed(tmp_path: Path):
    text = "[a](https://example.org/x) [b](mailto:a@example.org)\n`[c](nowhere.md)`\n"
    assert complaints(tmp_path, text + "\n```text\n[d](nowhere.md)\n```\n") == []


def test_text_between_two_code_blocks_is_read():
    assert targets("```\na\n```\n[x](y.md)\n```\nb\n```\n") == ["y.md"]


def test_headings_become_anchors_as_on_github():
    assert anchors("## How to add a `hostcall`, quickly\n") == {"how-to-add-a-hostcall-quickly"}
    assert anchors("```sh\n# a comment\n```\n") == set()
