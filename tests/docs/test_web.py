"""What docs/web.md and SECURITY.md say of the admin page in numbers and names is so."""

from __future__ import annotations

import re

import pytest

from bascule.auth.links import CONFIRM_SECONDS, LINK_SECONDS, PAGE_ROLES, PAGE_SECONDS
from bascule.auth.page_uses import IDLE_SECONDS
from checks.tree import ROOT
from checks.web import FIRST_LOAD_BYTES

MINUTE, HOUR = 60.0, 3_600.0


def text(name: str) -> str:
    """Return a page as one line, wherever its lines end."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    "name", ["docs/web.md", "docs/adr/0035-how-the-page-logs-in.md", "SECURITY.md"]
)
def test_how_long_links_and_pages_last_is_said_as_it_is(name: str):
    assert (LINK_SECONDS, PAGE_SECONDS, IDLE_SECONDS) == (10 * MINUTE, 12 * HOUR, 30 * MINUTE)
    page = text(name)
    for words in ("ten minutes", "after 12 hours", "after 30 minutes without"):
        assert words in page, words


@pytest.mark.parametrize("name", ["docs/web.md", "SECURITY.md"])
def test_how_long_a_code_confirms_is_said_as_it_is(name: str):
    assert CONFIRM_SECONDS == 5 * MINUTE
    assert re.search(r"code works for five minutes", text(name))


def test_the_page_names_every_screen_and_every_role():
    screens = (ROOT / "web/src/screens.ts").read_text(encoding="utf-8")
    labels = re.findall(r'label: "(\w+)"', screens)
    assert len(labels) > 10
    page = (ROOT / "docs/web.md").read_text(encoding="utf-8")
    table = page.partition("## The screens")[2].partition("What holds everywhere")[0]
    first = ", ".join(re.findall(r"^\| ([A-Z][\w, ]+) \|", table, re.MULTILINE)).split(", ")
    assert sorted(first) == sorted(labels)
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(PAGE_ROLES)
    assert f"at most {FIRST_LOAD_BYTES // 1_000} kB" in " ".join(page.split())
