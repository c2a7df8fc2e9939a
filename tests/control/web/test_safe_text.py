"""The page shows the words of others by the rules of ``render_safe``, character by character."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import pytest

from bascule.policy.characters import render_safe
from checks.web import WEB
from tests.npm import play

SCRIPT = """\
import {{ readFileSync }} from "node:fs";
import {{ safe }} from "{module}";
const texts = JSON.parse(readFileSync("{texts}", "utf-8"));
const shown = texts.map((text) => [safe(text), safe(text, {{ oneLine: true }})]);
console.log(JSON.stringify(shown));
"""
#: Around joiners and selectors it matters what stands beside them.
NEIGHBOURS = (
    *("a", " ", "\n", "\t", "\r", "\u200c", "\u200d", "\ufe0e", "\ufe0f", "\u202e", "\u0628"),
    *("\u0915", "\u17b4", "\u00a9", "\u2764", "\U0001f469", "\U000e0041", "\ud83d", "\ue000"),
)


def every_character() -> str:
    return "".join(f"a{chr(code)}" for code in range(sys.maxunicode + 1))


def mixtures() -> list[str]:
    dice = Random(18)
    # Two halves of a pair are one character to a browser.
    texts = ("".join(dice.choices(NEIGHBOURS, k=6)) for _ in range(2_000))
    return [
        text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") for text in texts
    ]


@pytest.mark.requirement("admin:page:hostile-words")
async def test_what_could_deceive_is_shown_as_an_escape_as_everywhere(tmp_path: Path):
    texts = [every_character(), *mixtures()]
    given, script = tmp_path / "texts.json", tmp_path / "script.mjs"
    given.write_text(json.dumps(texts), encoding="utf-8")
    module = (WEB / "src" / "text" / "safe.ts").as_uri()
    script.write_text(SCRIPT.format(module=module, texts=given), encoding="utf-8")
    shown = await play(60, "--no-warnings", script)
    for text, (lines, line) in zip(texts, shown, strict=True):
        assert lines == render_safe(text), ascii(text[:40])
        assert line == render_safe(text, one_line=True), ascii(text[:40])
