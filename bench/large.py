"""Large results and chat bodies: how long the event loop stands still for them.

A result of 3.5 MB is cleaned under a cap of 64 KiB, without a server: what is timed is what the
bridge does on the loop at a stretch. A chat body of 10 MB is read and written strictly.
"""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable
from typing import Any

from bascule.policy.cleaning import clean_value, text_slices
from bascule.policy.excerpt import excerpt
from bascule.policy.leaks import Scanner
from bascule.policy.output import cap_content
from bascule.wire.strict_json import dumps, loads
from bench.table import Row, at_most

NAME = "large"
SIZE, BODY, CAP = 3_500_000, 10_000_000, 65_536
_WORDS = ("alpha", "beta", "token", "the", "secret", "value", "x=1", "https://a.b/c", "\n")


def _text(size: int) -> str:
    return " ".join(random.Random(1).choices(_WORDS, k=size // 4))[:size]


def _rows(size: int) -> dict[str, Any]:
    row = {"id": 1, "name": "user 17", "note": "some words about it", "ok": True, "more": None}
    return {"rows": [row] * (size // len(json.dumps(row)))}


def _shown(content: list[Any], structured: Any, scanner: Scanner) -> None:
    part = excerpt(content, structured, CAP, CAP + 2 * scanner.reach)
    blocks, value = clean_value([part.content, part.structured], scanner).value
    cap_content(blocks, value, CAP, None, part.left_out)


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _milliseconds(action: Callable[[], object], times: int = 5) -> float:
    """Return the processor time of the quickest of several times."""
    spent: list[float] = []
    for _ in range(times):
        before = _processor_time()
        action()
        spent.append(_processor_time() - before)
    return round(min(spent) * 1000, 2)


def _longest_slice(text: str, scanner: Scanner) -> float:
    slices = text_slices(text, scanner)
    spent: list[float] = []
    while True:
        before = _processor_time()
        if next(slices, None) is None:
            return round(max(spent) * 1000, 2)
        spent.append(_processor_time() - before)


def run() -> list[Row]:
    """Return the longest stretches, by what is large."""
    scanner, text, rows = Scanner(["a known value"]), _text(SIZE), _rows(SIZE)
    said = [{"type": "text", "text": text}]
    spelled = [{"type": "text", "text": json.dumps(rows)}]
    chat = {"messages": [{"role": "user", "content": text, "name": None}] * (BODY // SIZE)}
    body = dumps(chat)
    results: list[tuple[str, Callable[[], object], float]] = [
        ("a text", lambda: _shown(said, None, scanner), 50),
        ("a text in structured content too", lambda: _shown(said, {"a": text}, scanner), 100),
        ("structured content", lambda: _shown([], rows, scanner), 100),
        ("structured content, spelled out", lambda: _shown(spelled, rows, scanner), 100),
    ]
    cleaned = [
        at_most(f"cleaning 3.5 MB, {name}", _milliseconds(action), "ms", goal)
        for name, action, goal in results
    ]
    return [
        *cleaned,
        at_most("reading 3.5 MB, longest slice", _longest_slice(text, scanner), "ms", 50),
        at_most("chat body of 10 MB, read", _milliseconds(lambda: loads(body)), "ms", 100),
        at_most("chat body of 10 MB, written", _milliseconds(lambda: dumps(chat)), "ms", 100),
    ]
