"""An event as the bytes that are kept of it, never more than a bounded number."""

from __future__ import annotations

import json

import msgspec
import orjson

from bascule.audit.events import Event
from bascule.model.json import JsonValue

MAX_BYTES = 16 * 1024
_MAX_TEXT = 256
_encode = msgspec.json.Encoder().encode


def event_bytes(event: Event) -> bytes:
    """Return an event as JSON; of one that is too long, what makes it so is left out."""
    try:
        line = _encode(event)
    except UnicodeEncodeError:  # half a character, from a name that was no UTF-8
        plain = json.dumps(msgspec.to_builtins(event), ensure_ascii=False)
        line = plain.encode("utf-8", "replace")
    return line if len(line) <= MAX_BYTES else _shortened(line)


def _shortened(line: bytes) -> bytes:
    """Leave out what is longest until the rest fits; names and numbers stay."""
    plain: dict[str, JsonValue] = orjson.loads(line)
    plain["shortened_from"] = len(line)
    for name in sorted(plain, key=lambda name: -len(orjson.dumps(plain[name]))):
        value = plain[name]
        kept = value[:_MAX_TEXT] + "…" if isinstance(value, str) else None
        plain[name] = kept
        line = orjson.dumps(plain)
        if len(line) <= MAX_BYTES:
            return line
    return orjson.dumps(plain)
