"""What a result says twice: text blocks, and structured content that repeats them.

Servers send both for the sake of old clients: ``{"result": text}``, ``{"content": text}``, a text
that is the JSON of the structured content, a block for each item of a list. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import orjson

from bascule.model.content import block_text, media_of
from bascule.model.json import JsonObject, JsonValue, is_array, is_object

Block = JsonObject

# Below this a copy weighs so little that looking for it costs more.
_SHORTEST = 32
# Beyond so many strings of a value, texts are searched for one by one where they are so few.
_MANY, _FEW = 1000, 8


def repeats(text: str, structured: JsonValue) -> bool:
    """Whether a text is the JSON of the structured content, as servers send for old clients."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return bool(orjson.loads(text) == structured)
    except ValueError:
        return False


def said(content: Iterable[Block], structured: JsonValue) -> frozenset[str]:
    """The strings of structured content that a block says as well: texts, and base64 of media."""
    if structured is None:
        return frozenset()
    shown = {text for block in content for text in strings_of(block) if text}
    return frozenset(among(shown, structured))


def among(texts: set[str], value: JsonValue) -> set[str]:
    """Those of these texts that are strings of a value."""
    if not texts:
        return texts
    strings = (leaf for leaf in _leaves(value) if isinstance(leaf, str))
    found = texts.intersection(islice(strings, _MANY))
    sought = texts - found
    if 0 < len(sought) <= _FEW:  # much is left to read: what its JSON does not have, it has not
        written = json_bytes(value)
        sought = {text for text in sought if json_bytes(text) in written}
    return found.union(sought.intersection(strings)) if sought else found


def says_nothing_else(value: JsonValue, repeated: frozenset[str]) -> bool:
    """Whether structured content is only a wrapper around what the blocks say."""
    return bool(repeated) and all(
        isinstance(leaf, str) and leaf in repeated for leaf in _leaves(value)
    )


def spelled_out(content: Sequence[Block], structured: JsonValue) -> frozenset[int]:
    """The blocks whose texts are the JSON of structured content: one for it all, or one an item.

    The only member of an object may stand for the object: values that are no objects are sent in
    such a wrapper.
    """
    if structured is None:
        return frozenset()
    texts = {n: text for n, block in enumerate(content) if (text := block_text(block))}
    for value in _unwrapped(structured):
        whole = [n for n, text in texts.items() if len(text) >= _SHORTEST and repeats(text, value)]
        if whole:
            return frozenset(whole[:1])
        if _item_by_item([*texts.values()], value):
            return frozenset(texts)
    return frozenset()


def _unwrapped(structured: JsonValue) -> Iterator[JsonValue]:
    yield structured
    if is_object(structured) and len(structured) == 1:
        yield from structured.values()


def _item_by_item(texts: list[str], value: JsonValue) -> bool:
    if not is_array(value) or not value or len(value) != len(texts):
        return False
    return all(repeats(text, item) for text, item in zip(texts, value, strict=True))


def strings_of(block: Block) -> Iterator[str]:
    """The strings of a block that structured content may repeat: its text, its base64."""
    text, media = block_text(block), media_of(block)
    if text is not None:
        yield text
    if media is not None:
        yield media.data


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if is_object(value) and value:
        for item in value.values():
            yield from _leaves(item)
    elif is_array(value) and value:
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def json_bytes(value: object) -> bytes:
    """Write a value compactly, whatever it holds: a weight is no place to refuse it."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, or nesting beyond what orjson writes
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")
