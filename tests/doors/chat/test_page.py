"""The page about the chat door says what is true."""

from __future__ import annotations

import re

from bascule.audit.metrics import BUDGETS
from bascule.doors.chat.options import ChatOptions
from bascule.loop.budgets import DEFAULT_SETTINGS
from bascule.loop.request import MAX_MESSAGES
from bascule.model.session import SessionRequest
from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS
from checks.tree import ROOT
from tests.doors.chat.site import Site

PAGE = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_way_to_narrow_is_on_the_page_and_no_other():
    rows = re.findall(r"^\| (`[^|]+`) \| ?`?([\w-]*)`? ?\|", section("Which tools"), re.MULTILINE)
    fields = {name for names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    assert fields == {*SessionRequest.__struct_fields__, *ChatOptions.__struct_fields__}
    assert {header for _, header in rows if header} == {*FLAGS, *LISTS, *NUMBERS}


def test_every_budget_is_on_the_page_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section("Budgets"), re.MULTILINE))
    sizes = {"1 MiB": 1024 * 1024}
    assert rows.keys() == BUDGETS
    for name, default in rows.items():
        assert getattr(DEFAULT_SETTINGS, name) == (sizes.get(default) or float(default))


def test_every_endpoint_is_on_the_page():
    shown = set(re.findall(r"^\| `(\w+ /v1/[^`]+)` \|", PAGE, re.MULTILINE))
    served = {
        f"{method} {one.path.replace('{model:path}', '{id}')}"
        for one in Site().routes
        if one.path.startswith("/v1/") and "{rest" not in one.path  # that one only says 404
        for method in one.verbs
    }
    assert shown == served
    assert f"{MAX_MESSAGES:,} messages" in PAGE
