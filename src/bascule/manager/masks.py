"""Values of an entry that nobody is shown: they read as ``***``, and are kept when they come back.

Literal values of env and headers are masked; a reference names a secret and is none. Of command,
args and url only what looks like a credential is masked: it should not be there, and often is.
A header that is kept is not sent to another address, as in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bascule.control.registry.masks import MASK, MOVED, is_literal, origin_of
from bascule.errors import InvalidRecord
from bascule.manager.config import McpServerConfig, plain_entry
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.reference import looks_like_a_credential

_HIDES: Mapping[str, Callable[[str], bool]] = {
    "env": is_literal,
    "headers": is_literal,
    "command": looks_like_a_credential,
    "args": looks_like_a_credential,
    "url": looks_like_a_credential,
}


def masked_entry(config: McpServerConfig) -> dict[str, JsonValue]:
    """Return an entry as plain values that may be shown."""
    plain = plain_entry(config)
    return {key: _masked(value, _HIDES[key]) if key in _HIDES else value
            for key, value in plain.items()}  # fmt: skip


def unmasked_entry(new: JsonObject, old: McpServerConfig | None) -> dict[str, JsonValue]:
    """Return plain values with every ``***`` replaced by what is there now.

    Raise InvalidRecord where nothing hidden is there, for the mask is nobody's value.
    """
    stored = {} if old is None else plain_entry(old)
    lost: list[str] = []
    plain = {
        key: _kept(value, stored.get(key), _HIDES[key], key, lost) if key in _HIDES else value
        for key, value in new.items()
    }
    if lost:
        raise InvalidRecord(lost)
    return plain


def refuse_moved_entry(given: JsonObject, new: JsonObject, old: McpServerConfig) -> None:
    """Raise InvalidRecord where an edit keeps a literal header and gives it a new address."""
    url = new.get("url")
    same = isinstance(url, str) and old.url is not None and origin_of(url) == origin_of(old.url)
    headers, named = new.get("headers"), given.get("headers")
    if same or not is_object(headers):
        return
    afresh: JsonObject = named if is_object(named) else {}
    moved = [
        f"headers.{name}: {MOVED}"
        for name, value in headers.items()
        if afresh.get(name, MASK) == MASK and value == old.headers.get(name)
        if isinstance(value, str) and is_literal(value)
    ]
    if moved:
        raise InvalidRecord(moved)


def _masked(value: JsonValue, hides: Callable[[str], bool]) -> JsonValue:
    if isinstance(value, str):
        return MASK if hides(value) else value
    if is_object(value):
        return {key: _masked(item, hides) for key, item in value.items()}
    return [_masked(item, hides) for item in value] if is_array(value) else value


def _kept(
    value: JsonValue, old: JsonValue, hides: Callable[[str], bool], path: str, lost: list[str]
) -> JsonValue:
    """Return a value with masks replaced; note the path of each that hides nothing."""
    if is_object(value):
        before: JsonObject = old if is_object(old) else {}
        return {
            key: _kept(item, before.get(key), hides, f"{path}.{key}", lost)
            for key, item in value.items()
        }
    if is_array(value):
        known = old if is_array(old) else ()
        return [
            _kept(item, known[i] if i < len(known) else None, hides, f"{path}[{i}]", lost)
            for i, item in enumerate(value)
        ]
    if value != MASK:
        return value
    if isinstance(old, str) and hides(old):
        return old
    lost.append(f"{path}: is masked ({MASK!r}) and there is no hidden value to keep")
    return value
