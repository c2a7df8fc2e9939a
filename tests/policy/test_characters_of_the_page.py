"""The page shows text by the rules of ``render_safe``: its own function says the same of any."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from bascule.policy.characters import render_safe
from tests.npm import play

SAFE = Path(__file__).parents[2] / "web" / "src" / "text" / "safe.ts"
_SCRIPT = """
import { readFileSync } from "node:fs";
import { safe } from "%s";
const texts = JSON.parse(readFileSync("%s", "utf-8"));
const said = texts.map((one) => [safe(one), safe(one, { oneLine: true })]);
process.stdout.write(JSON.stringify(said));
"""
#: Whatever has a meaning beside something else: joiners, selectors, bases, marks, halves of pairs.
_PIECES = (
    *"a \n\t\r\\é\u00a0\u3000\u200c\u200d\ufe0f\ufe00\u202e\u2066\u200b\u00ad\u3164",
    *"\u2028\u0645\u0d9a\u17b4\u1160❤🔥👩🏽\U000e0041\U000e0100\ue000\udc00\U00100000\x1b\x85",
    "1\ufe0f\u20e3",
)


def texts() -> list[str]:
    every = [f"x{chr(code)}y" for code in range(sys.maxunicode + 1)]
    blocks = ["".join(every[n : n + 4096]) for n in range(0, len(every), 4096)]
    luck = random.Random(18)
    return [*blocks, *("".join(luck.choices(_PIECES, k=luck.randint(1, 8))) for _ in range(5_000))]


@pytest.mark.requirement("admin:page:only-text")
async def test_the_page_shows_every_text_as_render_safe_does(tmp_path: Path):
    given = texts()
    corpus = tmp_path / "corpus.json"
    corpus.write_text(json.dumps(given), encoding="ascii")
    script = tmp_path / "compare.mjs"
    script.write_text(_SCRIPT % (SAFE.as_uri(), corpus), encoding="utf-8")
    shown = await play(60.0, "--disable-warning=ExperimentalWarning", script)
    wanted = [[render_safe(one), render_safe(one, one_line=True)] for one in given]
    assert [one for one, a, b in zip(given, shown, wanted, strict=True) if a != b] == []
