"""An event as the bytes that are kept of it, never more than a bounded number."""

from __future__ import annotations

import msgspec

from bascule.audit.events import Event
from bascule.model.json import JsonValue

MAX_BYTES = 16 * 1024
_MAX_TEXT = 256
_encode = msgspec.json.Encoder().encode


def event_bytes(event: Event) -> bytes:
    """Return an event as JSON; of one that is too long, what makes it so is left out."""
    line = event_json(event)
    return line if len(line) <= MAX_BYTES else _shortened(event, len(line))


def event_json(event: Event) -> bytes:
    """Return an event as JSON, however long; of a name that is no text, escapes are written."""
    try:
        return _encode(event)
    except UnicodeEncodeError:
        return _encode(_sayable(msgspec.to_builtins(event)))


def _sayable(value: JsonValue) -> JsonValue:
    """Return a value of which UTF-8 can say every text."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {str(_sayable(name)): _sayable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(one) for one in value]
    return value


def _shortened(event: Event, size: int) -> bytes:
    """Leave out what is longest until the rest fits; names and numbers stay."""
    plain: dict[str, JsonValue] = msgspec.json.decode(event_json(event))
    plain["shortened_from"] = size
    for name in sorted(plain, key=lambda name: -len(_encode(plain[name]))):
        value = plain[name]
        kept = value[:_MAX_TEXT] + "…" if isinstance(value, str) else None
        plain[name] = kept
        line = _encode(plain)
        if len(line) <= MAX_BYTES:
            return line
    return _encode(plain)
