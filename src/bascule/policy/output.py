"""Output caps: how much of a result a model gets.

The weight of a result is the UTF-8 size of what the model would read: the text of text blocks,
the JSON of every other block, and the JSON of structured content; a text block that only repeats
the structured content weighs nothing. Over the cap, text is cut on a character boundary with a
marker, blocks that cannot be cut are replaced by a line that says what they were, and what has no
room is dropped. What is left is always valid JSON and never weighs more than the cap; a marker
that would not fit inside the cap is left out.

Above: the bridge, which keeps the full text behind a handle. Below: nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from bascule.model.json import is_object

Block = Mapping[str, Any]

# Under this many bytes a marker would crowd out the text it speaks of.
SMALLEST_WITH_MARKER = 128


class Cut(NamedTuple):
    """A text under its cap: ``shown`` of ``total`` bytes of the original are in it."""

    text: str
    shown: int
    total: int
    truncated: bool


class CutContent(NamedTuple):
    """A result under its cap, in the shape it came in."""

    content: Sequence[Block]
    structured: Any
    shown: int
    total: int
    truncated: bool


def cap_text(text: str, limit: int) -> Cut:
    """The text, or as much of its beginning as fits together with the marker."""
    if len(text) <= limit and text.isascii():
        return Cut(text, len(text), len(text), truncated=False)
    raw = _utf8(text)
    if len(raw) <= limit:
        return Cut(raw.decode(), len(raw), len(raw), truncated=False)
    note = cut_marker(len(raw), len(raw)) if limit >= SMALLEST_WITH_MARKER else ""
    prefix = _prefix(raw, limit - len(note))
    shown = len(_utf8(prefix))
    note = note and cut_marker(shown, len(raw))
    return Cut(prefix + note, shown, len(raw), truncated=True)


def cut_marker(shown: int, total: int) -> str:
    """What stands at the end of a text that was cut."""
    return f"\n[truncated: {shown} of {total} bytes shown]"


def cap_content(content: Sequence[Block], structured: Any, limit: int) -> CutContent:
    """A whole result under one cap. Structured content comes first, then blocks in order."""
    sizes = _sizes(content, structured)
    structured_size = 0 if structured is None else _weight_of_json(structured)
    total = structured_size + sum(sizes)
    if total <= limit:
        return CutContent(content, structured, total, total, truncated=False)
    kept, shown, used = _cap_structured(structured, structured_size, limit)
    blocks: list[Block] = []
    for block, size in zip(content, sizes, strict=True):
        if structured is not None and size == 0 and kept is not structured:
            continue  # it repeats structured content that was itself cut
        smaller, seen = _cap_block(block, size, limit - used)
        if smaller is not None:
            blocks.append(smaller)
            used += 0 if size == 0 else block_weight(smaller)
            shown += seen
    return CutContent(blocks, kept, shown, total, truncated=True)


def weight(content: Sequence[Block], structured: Any = None) -> int:
    """How many bytes of UTF-8 a model would read of this result."""
    own = 0 if structured is None else _weight_of_json(structured)
    return own + sum(_sizes(content, structured))


def block_weight(block: Block) -> int:
    """How many bytes of UTF-8 a model would read of this block."""
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        return len(text) if text.isascii() else len(_utf8(text))
    return _weight_of_json(block)


def repeats(text: str, structured: Any) -> bool:
    """Whether a text is the JSON of the structured content, as servers send for old clients."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return bool(orjson.loads(text) == structured)
    except ValueError:
        return False


def _sizes(content: Iterable[Block], structured: Any) -> list[int]:
    if structured is None:
        return [block_weight(block) for block in content]
    return [0 if _copy_of(block, structured) else block_weight(block) for block in content]


def _copy_of(block: Block, structured: Any) -> bool:
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and repeats(text, structured)


def _cap_structured(value: Any, size: int, limit: int) -> tuple[Any, int, int]:
    """The value, or its cut form; the original bytes shown in it; the bytes it takes."""
    if size <= limit:
        return value, size, size

    def form(prefix: str, shown: int) -> Any:
        return {"truncated": {"shown": shown, "total": size}, "json": prefix}

    fitted = _fit(_json(value), limit, form)
    if fitted is not None:
        return *fitted, _weight_of_json(fitted[0])
    bare = {"truncated": True}
    taken = _weight_of_json(bare)
    return (bare, 0, taken) if taken <= limit else (None, 0, 0)


def _fit(raw: bytes, limit: int, form: Callable[[str, int], Any]) -> tuple[Any, int] | None:
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


def _cap_block(block: Block, size: int, room: int) -> tuple[Block | None, int]:
    """The block, or what fits of it in the room, and how many of its bytes are shown."""
    if size <= room:
        return block, size
    if room <= 0:
        return None, 0
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        cut = cap_text(text, room)
        return ({**block, "text": cut.text}, cut.shown) if cut.text else (None, 0)
    cut_resource = _cap_resource(block, room)
    if cut_resource is not None:
        return cut_resource
    line = _description(block, size)
    return ({"type": "text", "text": line}, 0) if len(_utf8(line)) <= room else (None, 0)


def _cap_resource(block: Block, room: int) -> tuple[Block, int] | None:
    """An embedded resource of text with its text cut; None for anything else."""
    resource = _member(block, "resource")
    text = resource.get("text")
    if not isinstance(text, str):
        return None
    raw = _utf8(text)

    def form(prefix: str, shown: int) -> Block:
        cut = prefix if shown == len(raw) else prefix + cut_marker(shown, len(raw))
        return {**block, "resource": {**resource, "text": cut}}

    return _fit(raw, room, form)


def _member(block: Block, name: str) -> Block:
    value: Any = block.get(name)
    return value if is_object(value) else {}


def _description(block: Block, size: int) -> str:
    described = _member(block, "resource") or block
    kind = str(block.get("type", "unknown"))[:40]
    media = described.get("mimeType")
    of = f" of {media[:80]}" if isinstance(media, str) else ""
    return f"[left out: {kind}{of}, {size} bytes, over the output cap]"


def _prefix(raw: bytes, room: int) -> str:
    return raw[: max(0, room)].decode("utf-8", "ignore")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _weight_of_json(value: Any) -> int:
    return len(_json(value))


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, or nesting beyond what orjson writes
        return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
