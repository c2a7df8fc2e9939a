"""What a server that exists keeps when an import brings it again.

A client's file says how a server is started or reached and nothing of what it may be used for, so
that is all that is taken over. A record of our own sets the fields that it names. Only where
whole records are meant, as in ``apply``, does what is not named fall back to its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from bascule.control.registry.masks import origin_of
from bascule.control.registry.merge import merged
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.kinds import Record
from bascule.model.server import ServerRecord
from bascule.wire.records import encode

#: ``connection``: how a server is started or reached. ``fields``: those that are named.
#: ``records``: whole ones.
Brings = Literal["connection", "fields", "records"]

_SECTIONS = ("stdio", "http")
_CONNECTION = ("server_id", "transport", *_SECTIONS)
#: What a client's file has no words for, and so cannot have meant to take away.
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "stdio": ("env_from",),
    "http": ("auth_ref", "auth", "tls", "insecure"),
}


def kept(data: JsonObject, old: Record | None, brings: Brings) -> JsonObject:
    """Return a server's plain values as an import leaves them; what is new is taken as it is."""
    if brings == "records" or not isinstance(old, ServerRecord):
        return data
    before = encode(old)
    named = _connection(data, before) if brings == "connection" else data
    if any(section in named for section in _SECTIONS):
        before = {name: value for name, value in before.items() if name not in _SECTIONS}
    return merged("server", before, named)


def _connection(data: JsonObject, before: JsonObject) -> dict[str, JsonValue]:
    fields = {name: data[name] for name in _CONNECTION if name in data}
    for section, beside in _BESIDE.items():
        new, old = fields.get(section), before.get(section)
        if is_object(new) and is_object(old) and _is_same_place(new, old):
            fields[section] = {name: old[name] for name in beside if name in old} | dict(new)
    return fields


def _is_same_place(new: JsonObject, old: JsonObject) -> bool:
    """Say whether a credential may stay: it goes to nobody but whom it was given for."""
    return origin_of(str(new.get("url"))) == origin_of(str(old.get("url")))
