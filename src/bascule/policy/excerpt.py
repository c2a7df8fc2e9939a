"""The beginning of a large result: more than its cap can show, and what the rest weighs.

Cleaning an excerpt costs what the cap allows and not what a server sent. It reaches further than
the cap by as much as a credential can extend, so that none is cut before it is seen. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bascule.model.content import block_text, media_of, noted, replaced
from bascule.model.json import JsonValue, is_array, is_object
from bascule.policy.copies import Block, among, json_bytes, said, spelled_out, strings_of
from bascule.policy.output import LeftOut, block_weight, weight

# What a value takes in JSON at the least, what brackets may be open where one is cut, and how much
# of a block's kind is ever told.
_LEAST, _BRACKETS, _KIND = 2, 64, 4096


class Excerpt(NamedTuple):
    """As much of a result as is looked at, and what was left out; None when that is nothing."""

    content: Sequence[Block]
    structured: JsonValue
    left_out: LeftOut | None = None


def excerpt(content: Sequence[Block], structured: JsonValue, limit: int, room: int) -> Excerpt:
    """Return about ``room`` bytes of a result that is over its limit.

    One that is not much larger than that is returned as it is.
    """
    whole = Excerpt(content, structured)
    if _written(content, structured) <= 2 * room:
        return whole
    spelled = spelled_out(content, structured)
    if spelled:
        over = sum(map(block_weight, content)) > limit
    else:
        over = weight(content, structured) > limit
    if not over:
        return whole
    kept, lacking, clips = _clipped_blocks(content, room)
    further = sum(map(block_weight, content[len(kept) :]))
    if spelled or structured is None:
        return Excerpt(kept, None, LeftOut(lacking, further, spelled=spelled))
    copy = _with_clips(structured, clips)
    repeated = frozenset(text for block in kept for text in strings_of(block))
    front = _front(copy, [room], repeated)
    beyond = len(_noted_json(content, copy)) - len(_noted_json(content, front))
    return Excerpt(kept, front, LeftOut(lacking, further, max(0, beyond)))


def suffices(cleaned: Excerpt, needed: int) -> bool:
    """Whether cleaning has left so many bytes of whatever was cut off.

    Masking makes a text shorter: a larger excerpt is taken then.
    """
    content, structured, left_out = cleaned
    if left_out is None:
        return True
    texts = (block_text(content[place]) for place in left_out.blocks)
    if any(text is not None and len(text) < needed for text in texts):
        return False
    if left_out.further and sum(map(block_weight, content)) < needed:
        return False
    if not left_out.structured:
        return True
    repeated = dict.fromkeys(said(content, structured), "")
    return len(json_bytes(replaced(structured, repeated))) >= needed + _BRACKETS


def _written(content: Sequence[Block], structured: JsonValue) -> int:
    """How much there is to look at; media have a cap of their own."""
    media = sum(len(found.data) for block in content if (found := media_of(block)))
    return len(json_bytes((content, structured))) - media


def _clipped_blocks(
    content: Sequence[Block], room: int
) -> tuple[list[Block], dict[int, int], dict[str, str]]:
    """The blocks that may be shown; what each lacks; texts and what was kept of them."""
    kept: list[Block] = []
    lacking: dict[int, int] = {}
    clips: dict[str, str] = {}
    left = room
    for block in content:
        if left <= 0:
            break
        size, text = block_weight(block), block_text(block)
        small = block if size <= room else _clipped(block, text, room)
        if small is not block:
            lacking[len(kept)] = size - block_weight(small)
            if text:
                clips[text] = text[:room]
        left -= 0 if small is not block and text is None else block_weight(small)
        kept.append(small)
    return kept, lacking, clips


def _clipped(block: Block, text: str | None, room: int) -> Block:
    """A block with the start of its text; of what cannot be cut, what is told of it."""
    if media_of(block) is not None:
        return block
    if block.get("type") == "text" and text is not None:
        return {**block, "text": text[:room]}
    resource = block.get("resource")
    if text is not None and is_object(resource):
        clipped = {**block, "resource": {**resource, "text": text[:room]}}
        if block_weight(clipped) <= 2 * room:
            return clipped
    told = {
        "type": block.get("type"),
        "mimeType": (resource if is_object(resource) else block).get("mimeType"),
    }
    return {key: value[:_KIND] for key, value in told.items() if isinstance(value, str)}


def _with_clips(structured: JsonValue, clips: Mapping[str, str]) -> JsonValue:
    """Structured content with the texts that blocks repeat clipped as they are there."""
    found = among(set(clips), structured)
    return replaced(structured, {text: clips[text] for text in found}) if found else structured


def _noted_json(content: Sequence[Block], structured: JsonValue) -> bytes:
    return json_bytes(noted(content, structured)[1])


def _front(value: JsonValue, left: list[int], repeated: Collection[str]) -> JsonValue:
    """As many members and items, from the first, as there are bytes left for.

    What blocks repeat is whole and hardly counts: a note or nothing may come to stand there.
    """
    if isinstance(value, str) and value not in repeated:
        kept = value[: max(_LEAST, left[0])]
        left[0] -= max(_LEAST, len(kept))
        return kept
    left[0] -= _LEAST
    if is_object(value):
        members: dict[str, JsonValue] = {}
        for key, member in value.items():
            if left[0] <= 0:
                break
            left[0] -= len(key)
            members[key] = _front(member, left, repeated)
        return members
    if is_array(value):
        items: list[JsonValue] = []
        for item in value:
            if left[0] <= 0:
                break
            items.append(_front(item, left, repeated))
        return items
    return value
