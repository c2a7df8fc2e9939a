"""An event as the bytes that are kept of it, never more than a bounded number."""

from __future__ import annotations

import msgspec
import orjson

from bascule.audit.events import Event
from bascule.model.json import JsonValue

MAX_BYTES = 16 * 1024
_MAX_TEXT = 256
_encode = msgspec.json.Encoder().encode


def event_bytes(event: Event) -> bytes:
    """Return an event as JSON; of one that is too long, what makes it so is left out."""
    line = _encode(event)
    return line if len(line) <= MAX_BYTES else _shortened(event, len(line))


def _shortened(event: Event, size: int) -> bytes:
    """Leave out what is longest until the rest fits; names and numbers stay."""
    plain: dict[str, JsonValue] = msgspec.to_builtins(event)
    plain["shortened_from"] = size
    for name in sorted(plain, key=lambda name: -len(orjson.dumps(plain[name]))):
        value = plain[name]
        kept = value[:_MAX_TEXT] + "…" if isinstance(value, str) else None
        plain[name] = kept
        line = orjson.dumps(plain)
        if len(line) <= MAX_BYTES:
            return line
    return orjson.dumps(plain)
