"""Output caps: how much of a result a model gets.

The weight of a result is the UTF-8 size of what the model would read: the text of text blocks,
the JSON of every other block, and the JSON of structured content. What is said twice weighs once
(``copies``). The bytes of media are not read by a text model: they have a cap of their own.

Over the cap, text is cut on a character boundary with a marker, and so is its copy in structured
content; text gets at least three quarters of the room. Blocks that cannot be cut are replaced by a
line that says what they were, and what has no room is dropped. What is left is always valid JSON
and never weighs more than the cap; a marker that would not fit inside the cap is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from bascule.model.content import media_of, noted, replaced
from bascule.model.json import JsonValue, is_object
from bascule.policy.copies import (
    Block,
    json_bytes,
    said,
    says_nothing_else,
    spelled_out,
    strings_of,
)

T = TypeVar("T")

# Under this many bytes a marker would crowd out the text it speaks of.
SMALLEST_WITH_MARKER = 128


class Cut(NamedTuple):
    """A text under its cap: ``shown`` of ``total`` bytes of the original are in it."""

    text: str
    shown: int
    total: int
    truncated: bool


class CutContent(NamedTuple):
    """A result under its caps, in the shape it came in.

    ``shown`` of ``total`` bytes of what a text model reads, and of the media beside it.
    """

    content: Sequence[Mapping[str, Any]]
    structured: Any
    shown: int
    total: int
    truncated: bool
    media_shown: int = 0
    media_total: int = 0


class LeftOut(NamedTuple):
    """What the excerpt of a large result lacks, in bytes.

    ``blocks`` says it of each block by its place, ``further`` of the blocks after these, and
    ``structured`` of structured content. ``spelled`` are the blocks whose texts are the JSON of
    structured content; then the excerpt has none.
    """

    blocks: Mapping[int, int]
    further: int = 0
    structured: int = 0
    spelled: frozenset[int] = frozenset()

    @property
    def text(self) -> int:
        """Return how many bytes are missing of all blocks."""
        return sum(self.blocks.values()) + self.further


def cap_text(text: str, limit: int, beyond: int = 0) -> Cut:
    """The text, or as much of its beginning as fits together with the marker.

    ``beyond`` is how many bytes more the text has than is given.
    """
    if not beyond and len(text) <= limit and text.isascii():
        return Cut(text, len(text), len(text), truncated=False)
    raw = _utf8(text)
    total = len(raw) + beyond
    if total <= limit:
        return Cut(raw.decode(), total, total, truncated=False)
    note = cut_marker(total, total) if limit >= SMALLEST_WITH_MARKER else ""
    prefix = _prefix(raw, limit - len(note))
    shown = len(_utf8(prefix))
    note = note and cut_marker(shown, total)
    return Cut(prefix + note, shown, total, truncated=True)


def cut_marker(shown: int, total: int) -> str:
    """What stands at the end of a text that was cut."""
    return f"\n[truncated: {shown} of {total} bytes shown]"


def cap_content(
    content: Sequence[Block],
    structured: JsonValue,
    limit: int,
    media_limit: int | None = None,
    left_out: LeftOut | None = None,
) -> CutContent:
    """A result under its caps; one of which something was left out is over them."""
    media = _cap_media(content, media_limit)
    blocks, copy = media.content, replaced(structured, media.lines) if media.lines else structured
    if left_out is not None:
        cut = _cut(blocks, copy, limit, left_out)
        return cut._replace(media_shown=media.shown, media_total=media.total)
    total = weight(content, structured)
    if weight(blocks, copy) <= limit:
        whole = not media.lines
        shown = total if whole else total - media.without
        figures = (media.shown, media.total)
        return CutContent(blocks, copy, shown, total, not whole, *figures)
    found = LeftOut({}, spelled=spelled_out(blocks, copy))
    cut = _cut(blocks, copy, limit, found)
    return cut._replace(media_shown=media.shown, media_total=media.total)


def weight(content: Sequence[Block], structured: JsonValue = None) -> int:
    """How many bytes of UTF-8 a model would read of this result."""
    copies = spelled_out(content, structured)
    sizes = (block_weight(block) for n, block in enumerate(content) if n not in copies)
    return sum(sizes) + _rest(content, structured)


def block_weight(block: Block) -> int:
    """How many bytes of UTF-8 a model would read of this block."""
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        return len(text) if text.isascii() else len(_utf8(text))
    media = media_of(block)
    return _weight_of_json(block) - (0 if media is None else len(json_bytes(media.data)) - 2)


def _rest(content: Sequence[Block], structured: JsonValue) -> int:
    """What structured content adds to what the blocks say."""
    if structured is None:
        return 0
    repeated = said(content, structured)
    if not repeated:
        return _weight_of_json(structured)
    if says_nothing_else(structured, repeated):
        return 0
    return _weight_of_json(replaced(structured, dict.fromkeys(repeated, "")))


# --- media


class _Media(NamedTuple):
    """Blocks in which media over the cap are lines, and those lines by the base64 they replace."""

    content: Sequence[Block]
    lines: dict[str, str]
    without: int
    shown: int
    total: int


def _cap_media(content: Sequence[Block], limit: int | None) -> _Media:
    blocks: list[Block] = []
    lines: dict[str, str] = {}
    shown = total = without = 0
    for block in content:
        media = media_of(block)
        size = 0 if media is None else media.size
        total += size
        if media is None or limit is None or shown + size <= limit:
            shown += size
            blocks.append(block)
            continue
        lines[media.data] = _description(block, size, "media cap")
        without += block_weight(block)
        blocks.append({"type": "text", "text": lines[media.data]})
    return _Media(blocks if lines else content, lines, without, shown, total)


# --- cutting


def _cut(
    content: Sequence[Block], structured: JsonValue, limit: int, left_out: LeftOut
) -> CutContent:
    if left_out.spelled:
        return _cut_spelled_out(content, limit, left_out)
    rest = _rest(content, structured) + left_out.structured
    blocks, swaps, shown, used = _cut_blocks(content, limit - min(rest, limit // 4), left_out)
    total = sum(map(block_weight, content)) + left_out.text + rest
    kept = replaced(structured, swaps) if swaps else structured
    left = _rest(blocks, kept) + left_out.structured
    if left <= limit - used:
        return CutContent(blocks, kept, min(total, shown + rest), total, truncated=True)
    kept, seen = _cut_structured(noted(content, kept)[1], limit - used, left_out.structured)
    return CutContent(blocks, kept, shown + min(seen, rest), total, truncated=True)


def _cut_spelled_out(content: Sequence[Block], limit: int, left_out: LeftOut) -> CutContent:
    """The texts are the JSON of the structured content: what is cut of them is cut of it."""
    total = sum(map(block_weight, content)) + left_out.text
    form: dict[str, JsonValue] = {"truncated": {"shown": total, "total": total}, "json": ""}
    taken = _weight_of_json(form)
    room = limit - taken if taken <= limit // 4 else limit
    blocks, swaps, shown, _ = _cut_blocks(content, room, left_out)
    places = sorted(n for n in left_out.spelled if n < len(content))
    texts = [swaps.get(text, text) for n in places for text in strings_of(content[n])]
    kept: dict[str, JsonValue] = {"truncated": {"shown": shown, "total": total}}
    if len(left_out.spelled) == 1 and texts and texts[0]:
        kept["json"] = texts[0]
    fits = room < limit and weight(blocks, kept) <= limit
    return CutContent(blocks, kept if fits else None, shown, total, truncated=True)


def _cut_blocks(
    content: Sequence[Block], room: int, left_out: LeftOut
) -> tuple[list[Block], dict[str, str], int, int]:
    """As much of the blocks as fits, in order; what became of their strings; shown; used."""
    blocks: list[Block] = []
    swaps: dict[str, str] = {}
    shown = used = 0
    for place, block in enumerate(content):
        smaller, seen = _cap_block(block, room - used, left_out.blocks.get(place, 0))
        if smaller is not block:
            new = "" if smaller is None else next(strings_of(smaller), "")
            swaps.update((old, new) for old in strings_of(block) if old and old not in swaps)
        if smaller is not None:
            blocks.append(smaller)
            used += block_weight(smaller)
            shown += seen
    return blocks, swaps, shown, used


def _cut_structured(value: JsonValue, limit: int, beyond: int) -> tuple[JsonValue, int]:
    """The cut form of a value, and how many bytes of its JSON are shown in it."""
    raw = json_bytes(value)
    total = len(raw) + beyond

    def form(prefix: str, shown: int) -> JsonValue:
        return {"truncated": {"shown": shown, "total": total}, "json": prefix}

    fitted = _fit(raw, limit, form)
    if fitted is not None:
        return fitted
    bare = {"truncated": True}
    return (bare, 0) if _weight_of_json(bare) <= limit else (None, 0)


def _fit(raw: bytes, limit: int, form: Callable[[str, int], T]) -> tuple[T, int] | None:
    """The form with the longest prefix (about) whose JSON is within the limit, and its bytes."""
    room = limit
    while room > 0:
        prefix = _prefix(raw, room)
        shown = len(_utf8(prefix))
        made = form(prefix, shown)
        taken = _weight_of_json(made)
        if taken <= limit:
            return made, shown
        # Escaping makes the prefix longer than itself: shrink in proportion, at least by one.
        room = min(room - 1, room * limit // taken)
    return None


def _cap_block(block: Block, room: int, beyond: int) -> tuple[Block | None, int]:
    """The block, or what fits of it in the room, and how many of its bytes are shown."""
    size = block_weight(block) + beyond
    if size <= room:
        return block, size
    if room <= 0:
        return None, 0
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        cut = cap_text(text, room, beyond)
        return ({**block, "text": cut.text}, cut.shown) if cut.text else (None, 0)
    cut_resource = _cap_resource(block, room, beyond)
    if cut_resource is not None:
        return cut_resource
    media = media_of(block)
    line = _description(block, size if media is None else media.size, "output cap")
    return ({"type": "text", "text": line}, 0) if len(_utf8(line)) <= room else (None, 0)


def _cap_resource(block: Block, room: int, beyond: int) -> tuple[Block, int] | None:
    """An embedded resource of text with its text cut; None for anything else."""
    resource = _member(block, "resource")
    text = resource.get("text")
    if not isinstance(text, str):
        return None
    raw = _utf8(text)
    total = len(raw) + beyond

    def form(prefix: str, shown: int) -> Block:
        cut = prefix if shown == total else prefix + cut_marker(shown, total)
        return {**block, "resource": {**resource, "text": cut}}

    return _fit(raw, room, form)


def _member(block: Block, name: str) -> Block:
    value: JsonValue = block.get(name)
    return value if is_object(value) else {}


def _description(block: Block, size: int, cap: str) -> str:
    described = _member(block, "resource") or block
    kind = str(block.get("type", "unknown"))[:40]
    media = described.get("mimeType")
    of = f" of {media[:80]}" if isinstance(media, str) else ""
    return f"[left out: {kind}{of}, {size} bytes, over the {cap}]"


def _prefix(raw: bytes, room: int) -> str:
    return raw[: max(0, room)].decode("utf-8", "ignore")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _weight_of_json(value: object) -> int:
    return len(json_bytes(value))
