"""JSON values and long texts without hidden characters and without credentials.

A long one is cleaned a slice at a time, each at a cost that its size bounds: joined, the slices are
what cleaning the whole would give. What stands across the border of two is found. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson

from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.policy.characters import is_plain_json, neutralise, seam
from bascule.policy.copies import json_bytes
from bascule.policy.leak_keys import sensitive_key
from bascule.policy.leaks import NOTHING, LeakFinding, Scanner

#: Characters of a slice: some hundred microseconds of ordinary text.
SLICE = 1 << 16


class Slice(NamedTuple):
    """A part of a cleaned text, and which credentials were masked in it."""

    text: str
    leaks: LeakFinding = NOTHING


class Cleaned(NamedTuple):
    """A value, which characters were made harmless in it, and which credentials masked."""

    value: Any
    characters: Mapping[str, int]
    leaks: LeakFinding


def told_of(characters: Mapping[Any, int]) -> str:
    """Say which characters were made harmless."""
    listed = ", ".join(f"{number} {kind}" for kind, number in characters.items())
    return f"characters made harmless: {listed}"


def clean_value(value: object, scanner: Scanner | None) -> Cleaned:
    """Return a JSON value as it may be shown; without a scanner credentials stay."""
    characters: dict[str, int] = {}
    harmless = value if _is_harmless(value) else _harmless(value, characters)
    masked, leaks = (harmless, NOTHING) if scanner is None else scanner.mask_json(harmless)
    return Cleaned(masked, characters, leaks)


def _is_harmless(value: object) -> bool:
    """Say so at once of most values; what cannot be written is looked at string by string."""
    try:
        return is_plain_json(orjson.dumps(value))
    except TypeError:
        return False


def _harmless(value: object, characters: dict[str, int]) -> Any:
    if isinstance(value, str):
        harmless = neutralise(value)
        for kind, number in harmless.counts.items():
            characters[kind] = characters.get(kind, 0) + number
        return harmless.text
    if is_object(value):
        return {_harmless(key, characters): _harmless(v, characters) for key, v in value.items()}
    if is_array(value):
        return [_harmless(item, characters) for item in value]
    return value


def text_slices(text: str, scanner: Scanner | None, size: int = SLICE) -> Iterator[Slice]:
    """Yield a text as it may be shown, from its beginning."""
    chunks = _harmless_chunks(text, size)
    if scanner is None:
        return map(Slice, chunks)
    return (Slice(*masked) for masked in scanner.mask_slices(chunks, size))


def _harmless_chunks(text: str, size: int) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = seam(text, at, at + size)
        yield neutralise(text[at:end]).text
        at = end


def json_slices(value: JsonValue, scanner: Scanner | None, size: int = SLICE) -> Iterator[Slice]:
    """Yield the compact JSON of a value as it may be shown, from its beginning."""
    if is_object(value) and value:
        yield Slice("{")
        yield from _members(value, scanner, size)
        yield Slice("}")
    elif is_array(value) and value:
        yield Slice("[")
        yield from _items(value, scanner, size)
        yield Slice("]")
    elif isinstance(value, str) and len(value) > size:
        yield Slice('"')
        for piece in text_slices(value, scanner, size):
            yield piece._replace(text=_inside(piece.text))
        yield Slice('"')
    else:
        yield _whole(value, scanner)


def _members(value: JsonObject, scanner: Scanner | None, size: int) -> Iterator[Slice]:
    if len(json_bytes(value)) <= size:
        yield _bare(value, scanner)
    elif len(value) > 1:
        half = len(value) // 2
        yield from _members(dict(islice(value.items(), half)), scanner, size)
        yield Slice(",")
        yield from _members(dict(islice(value.items(), half, None)), scanner, size)
    else:
        [(key, member)] = value.items()
        if isinstance(member, str) and (len(member) <= size or sensitive_key(key)):
            yield _bare(value, scanner)  # judged with its name
        else:
            name = _whole(key, scanner)
            yield name._replace(text=f"{name.text}:")
            yield from json_slices(member, scanner, size)


def _items(value: Any, scanner: Scanner | None, size: int) -> Iterator[Slice]:
    if len(json_bytes(value)) <= size:
        yield _bare(value, scanner)
    elif len(value) > 1:
        half = len(value) // 2
        yield from _items(value[:half], scanner, size)
        yield Slice(",")
        yield from _items(value[half:], scanner, size)
    else:
        yield from json_slices(value[0], scanner, size)


def _whole(value: object, scanner: Scanner | None) -> Slice:
    cleaned = clean_value(value, scanner)
    return Slice(json_bytes(cleaned.value).decode(), cleaned.leaks)


def _bare(value: object, scanner: Scanner | None) -> Slice:
    """Return the members or items of a container, without the brackets around them."""
    text, leaks = _whole(value, scanner)
    return Slice(text[1:-1], leaks)


def _inside(text: str) -> str:
    return json_bytes(text).decode()[1:-1]
