"""A result that was cut and is still what its tool promises, for callers who check that.

Where the text is the JSON of structured content, it is so afterwards; what shows that something
was cut is a text of its own then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from bascule.model.content import block_text
from bascule.model.json import JsonValue, is_object
from bascule.node.bridge.refusal import leak_blocked
from bascule.node.bridge.table import Target
from bascule.policy.cleaning import clean_value, text_slices
from bascule.policy.copies import Block, json_bytes, spelled_out
from bascule.policy.excerpt import Excerpt
from bascule.policy.fitting import fitted, shortened, trimmed
from bascule.policy.leaks import LeakFinding, Scanner
from bascule.policy.output import SMALLEST_WITH_MARKER, CutContent, cap_content, cut_marker, weight

T = TypeVar("T")

# So many times the cap is looked at: what is wrong may be mended with something further back.
_TIMES = 2
# Strings that are shortened, which takes some 50 us each; and what is cleaned of one at the least.
_MOST_PIECES, _PIECE = 512, 4096
_CUT_FORM = frozenset({"truncated", "json"})


def keeping_schema(
    sent: Excerpt,
    seen: Excerpt,
    capped: CutContent,
    limit: int,
    target: Target,
    scanner: Scanner | None,
) -> CutContent | None:
    """Return a cut result that fits its tool's output schema; None when there is none.

    ``sent`` is the result as it came, ``seen`` what was looked at, and is cleaned. A credential
    that may not pass raises Refused.
    """
    validator = target.promise.validator
    if validator is None:
        return None
    if not _is_cut_form(capped.structured) and validator.misfits(capped.structured) == []:
        return capped
    repeats = _is_spelled_out(seen) or not any(map(block_text, capped.content))
    note = _note(capped.total, capped.total) if limit >= SMALLEST_WITH_MARKER else []
    content = _beside(sent, limit // 4, target, scanner) if repeats else capped.content
    part = _part(sent.structured, _TIMES * limit, target, scanner)
    kept = fitted(part, validator, limit - weight([*content, *note]))
    if kept is None:
        return None
    shown = min(capped.total, weight(content, kept))
    ending = [*content, *(_note(shown, capped.total) if note else ())]
    whole = [*_copy(kept), *ending] if repeats else ending
    if weight(whole, kept) > limit:  # too short to be taken for a copy
        whole = ending
    return capped._replace(content=whole, structured=kept, shown=shown)


def _is_spelled_out(seen: Excerpt) -> bool:
    return bool(spelled_out(*seen[:2]) if seen.left_out is None else seen.left_out.spelled)


def _beside(sent: Excerpt, limit: int, target: Target, scanner: Scanner | None) -> Sequence[Block]:
    """Return what is no text: links, pictures, and the like."""
    others = [block for block in sent.content if block_text(block) is None]
    capped = cap_content(others, None, limit, target.grant.budgets.max_media_bytes)
    return _cleaned(capped.content, target, scanner)


def _copy(structured: JsonValue) -> list[Block]:
    return [{"type": "text", "text": json_bytes(structured).decode()}]


def _is_cut_form(structured: JsonValue) -> bool:
    return structured is None or (
        is_object(structured) and "truncated" in structured and structured.keys() <= _CUT_FORM
    )


def _note(shown: int, total: int) -> list[Block]:
    return [{"type": "text", "text": cut_marker(shown, total).strip()}]


def _part(value: JsonValue, room: int, target: Target, scanner: Scanner | None) -> JsonValue:
    """Return much of a value, cleaned: no credential is cut before it is seen."""
    pieces = iter(range(_MOST_PIECES))

    def shorten(text: str, room: int) -> str:
        if next(pieces, None) is None:
            return ""
        start = next(text_slices(text, scanner, max(room, _PIECE)))
        _refuse_leaks(start.leaks, target)
        return shortened(start.text, room)

    return _cleaned(trimmed(value, room, shorten), target, scanner)


def _cleaned(value: T, target: Target, scanner: Scanner | None) -> T:
    cleaned = clean_value(value, scanner)
    _refuse_leaks(cleaned.leaks, target)
    return cleaned.value


def _refuse_leaks(leaks: LeakFinding, target: Target) -> None:
    if leaks.total and target.leaks == "block":
        raise leak_blocked(target.server_id, target.tool, f"the result ({leaks})")
