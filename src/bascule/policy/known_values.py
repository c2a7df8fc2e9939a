"""The spellings under which a known secret may cross the bridge.

A value that the node resolved from a reference is known exactly, so it is looked for exactly: as it
is, and in the encodings in which tools and protocols usually carry it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import orjson

# Shorter values ("prod", "1") are also ordinary words: masking them would ruin ordinary text.
SHORTEST = 6
# The part of an encoded form that does not depend on its neighbours must be this long.
SHORTEST_ENCODED = 8

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def spellings(value: str) -> tuple[str, ...]:
    """Every form to look for, without repeats; empty when the value is too short to look for."""
    if len(value) < SHORTEST:
        return ()
    raw = value.encode("utf-8", "surrogatepass")
    encoded = (form for form in _encoded(raw) if len(form) >= SHORTEST_ENCODED)
    return tuple(dict.fromkeys((raw.decode("utf-8", "replace"), *_escaped(value, raw), *encoded)))


def _escaped(value: str, raw: bytes) -> Iterator[str]:
    yield json.dumps(value)[1:-1]
    yield json.dumps(json.dumps(value)[1:-1])[1:-1]  # JSON in a string of JSON
    yield repr(value)[1:-1]  # as messages quote it
    yield json.dumps(value)[1:-1].replace("/", "\\/")
    yield orjson.dumps(raw.decode("utf-8", "replace")).decode()[1:-1]
    for safe in (_UNRESERVED, _UNRESERVED | {ord("/")}):
        quoted = "".join(chr(b) if b in safe else f"%{b:02X}" for b in raw)
        yield quoted
        yield "".join(chr(b) if b in safe else f"%{b:02x}" for b in raw)
        yield quoted.replace("%20", "+")


def _encoded(raw: bytes) -> Iterator[str]:
    yield raw.hex()
    yield raw.hex().upper()
    for shift in range(3):
        core = _base64_core(raw, shift)
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _base64_core(raw: bytes, shift: int) -> str:
    """The base64 of the value at one of three alignments, less what its neighbours decide."""
    text = base64.b64encode(b"\0" * shift + raw).decode()
    settled = (shift + len(raw)) * 8 // 6
    return text[-(-shift * 8 // 6) : settled]
