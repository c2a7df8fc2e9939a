"""Tools, content blocks and results as a client of one version of the protocol may see them.

Fields that no version knows stay as they are. A field that only other versions have goes, and so
does one of the wrong type: nothing is coerced. What a version has no block for becomes text.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import UNSET, UnsetType

from bascule.model.content import block_text, media_of, noted, replaced
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.policy.copies import json_bytes, repeats, said, says_nothing_else, spelled_out
from bascule.wire.era import META, MODERN

Shown: TypeAlias = dict[str, JsonValue]
#: Gives a value as it may be shown, or UNSET where it may not.
Shape: TypeAlias = Callable[[Any, str], JsonValue | UnsetType]

_NOTHING: JsonObject = {}
_FIRST = "2024-11-05"
_STRUCTURED_SINCE = "2025-06-18"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class ResultFields(NamedTuple):
    """What came of a call; ``extra`` has ``_meta``, and fields that nobody here knows."""

    content: Sequence[JsonObject]
    structured: JsonValue = None
    is_error: bool = False
    extra: JsonObject = _NOTHING


def tool_for(definition: JsonObject, version: str) -> Shown:
    """Return a listed tool as a client of this version may see it."""
    return _TOOL.shown(definition, version)


def block_for(block: JsonObject, version: str) -> Shown:
    """Return a content block, or a text that says what it was."""
    if is_plain_text(block):
        return {**block}
    kind = block.get("type")
    known = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if known is not None and known.since <= version:
        shown = known.record.read(block, version)
        if shown is not UNSET:
            return shown
    told: Shown = {"type": "text", "text": _told(block)}
    annotations = _ANNOTATIONS.read(block.get("annotations"), version)
    return told if annotations is UNSET else told | {"annotations": annotations}


def result_for(fields: ResultFields, version: str) -> Shown:
    """Return the result of ``tools/call``."""
    blocks, structured, is_error, extra = fields
    content: list[JsonValue] = [block_for(block, version) for block in blocks]
    result: Shown = {"content": content, **_EXTRA.shown(extra, version)}
    if structured is not None:
        _add_structured(result, content, structured, version)
    if is_error:
        result["isError"] = True
    if version == MODERN:
        result["resultType"] = "complete"
    return result


def is_plain_text(block: JsonObject) -> bool:
    """Say whether a block is a text and nothing else, which every version has."""
    return len(block) == 2 and block.get("type") == "text" and isinstance(block.get("text"), str)


def _add_structured(
    result: Shown, content: list[JsonValue], structured: JsonValue, version: str
) -> None:
    """Add structured content where the version has it, otherwise a text unless one says it."""
    blocks = [block for block in content if is_object(block)]
    if version == MODERN or (version >= _STRUCTURED_SINCE and is_object(structured)):
        result["structuredContent"] = structured
    elif not _says(blocks, structured):
        told = json_bytes(noted(blocks, structured)[1]).decode()
        content.append({"type": "text", "text": told})


def _says(blocks: Sequence[JsonObject], structured: JsonValue) -> bool:
    """Say whether the blocks have all that is in the structured content."""
    return (
        any(repeats(block_text(block) or "", structured) for block in blocks)
        or bool(spelled_out(blocks, structured))
        or says_nothing_else(structured, said(blocks, structured))
    )


def _told(block: JsonObject) -> str:
    """Return what a model is told of a block; of media their type and size, not their bytes."""
    kind, media = block.get("type"), media_of(block)
    if kind == "resource_link" and _LINK.read(block, MODERN) is not UNSET:
        description = block.get("description")
        more = f" {description}" if isinstance(description, str) else ""
        return f"[link: {block['name']}, {block['uri']}]{more}"
    if media is None or not media.data:
        return json_bytes(block).decode()
    if kind == "audio":
        return media.note
    return json_bytes(replaced(block, {media.data: media.note})).decode()


class Field(NamedTuple):
    """What a field has to be, and the first and the last version that has it."""

    shape: Shape
    since: str = _FIRST
    until: str = MODERN


class Record(NamedTuple):
    """An object of the protocol: its fields, and those that it cannot be without."""

    fields: Mapping[str, Field]
    required: tuple[str, ...] = ()

    def shown(self, value: JsonObject, version: str) -> Shown:
        """Return an object with the fields that may be shown."""
        kept: Shown = {}
        for name, part in value.items():
            field = self.fields.get(name)
            if field is None:
                kept[name] = part
            elif field.since <= version <= field.until:
                fit = field.shape(part, version)
                if fit is not UNSET:
                    kept[name] = fit
        return kept

    def read(self, value: object, version: str) -> Shown | UnsetType:
        """Return an object as it may be shown, unless it is none or lacks what it must have."""
        if not is_object(value):
            return UNSET
        kept = self.shown(value, version)
        return kept if all(name in kept for name in self.required) else UNSET


class Kind(NamedTuple):
    """A kind of content block, and the first version that has it."""

    record: Record
    since: str = _FIRST


def _text(value: Any, version: str) -> JsonValue | UnsetType:
    return value if isinstance(value, str) else UNSET


def _flag(value: Any, version: str) -> JsonValue | UnsetType:
    return value if isinstance(value, bool) else UNSET


def _integer(value: Any, version: str) -> JsonValue | UnsetType:
    return value if _is_number(value) and value % 1 == 0 else UNSET


def _share(value: Any, version: str) -> JsonValue | UnsetType:
    return value if _is_number(value) and 0 <= value <= 1 else UNSET


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _uri(value: Any, version: str) -> JsonValue | UnsetType:
    """Ask for a scheme, without which clients refuse the whole result."""
    return value if isinstance(value, str) and _SCHEME.match(value) else UNSET


def _base64(value: Any, version: str) -> JsonValue | UnsetType:
    """Take lines and spaces, as clients do; they refuse the whole result for anything else."""
    if not isinstance(value, str):
        return UNSET
    try:
        binascii.a2b_base64("".join(value.split()), strict_mode=True)
    except ValueError:
        return UNSET
    return value


def _object(value: Any, version: str) -> JsonValue | UnsetType:
    return value if is_object(value) else UNSET


def _never(value: Any, version: str) -> UnsetType:
    return UNSET


def _one_of(*words: str) -> Shape:
    return lambda value, version: value if value in words else UNSET


def _all(shape: Shape) -> Shape:
    """Take a list all of whose items fit."""

    def take(value: Any, version: str) -> JsonValue | UnsetType:
        fits = is_array(value) and all(shape(item, version) is not UNSET for item in value)
        return value if fits else UNSET

    return take


def _each(record: Record) -> Shape:
    """Take those items of a list that fit."""

    def take(value: Any, version: str) -> JsonValue | UnsetType:
        if not is_array(value):
            return UNSET
        read = (record.read(item, version) for item in value)
        return [item for item in read if item is not UNSET]

    return take


def _names(value: Any, version: str) -> JsonValue | UnsetType:
    return value if version == MODERN else _all(_text)(value, version)


def _properties(value: Any, version: str) -> JsonValue | UnsetType:
    """Write the schemas ``true`` and ``false`` as objects, the only ones that legacy has."""
    if version == MODERN:
        return value
    if not is_object(value):
        return UNSET
    schemas = {name: _as_object(part) for name, part in value.items()}
    return {name: schema for name, schema in schemas.items() if is_object(schema)}


def _as_object(schema: JsonValue) -> JsonValue:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _output_schema(value: Any, version: str) -> JsonValue | UnsetType:
    legacy = version != MODERN
    if legacy and is_object(value) and value.get("type") != "object":
        return UNSET
    return _SCHEMA.read(value, version)


def _contents(value: Any, version: str) -> JsonValue | UnsetType:
    read = _CONTENTS.read(value, version)
    return UNSET if read is UNSET or not ("text" in read or "blob" in read) else read


_SCHEMA = Record(
    {"$schema": Field(_text), "properties": Field(_properties), "required": Field(_names)}
)
_ICON = Record(
    {
        "src": Field(_uri),
        "mimeType": Field(_text),
        "sizes": Field(_all(_text)),
        "theme": Field(_one_of("dark", "light")),
    },
    required=("src",),
)
_ICONS = Field(_each(_ICON), since="2025-11-25")
_META_FIELD = Field(_object, since="2025-06-18")
_HINTS = Record(
    {
        "title": Field(_text),
        "readOnlyHint": Field(_flag),
        "destructiveHint": Field(_flag),
        "idempotentHint": Field(_flag),
        "openWorldHint": Field(_flag),
    }
)
_EXECUTION = Record({"taskSupport": Field(_one_of("forbidden", "optional", "required"))})
_TOOL = Record(
    {
        "name": Field(_text),
        "description": Field(_text),
        "inputSchema": Field(_SCHEMA.read),
        "annotations": Field(_HINTS.read, since="2025-03-26"),
        "title": Field(_text, since="2025-06-18"),
        "outputSchema": Field(_output_schema, since=_STRUCTURED_SINCE),
        "_meta": _META_FIELD,
        "icons": _ICONS,
        "execution": Field(_EXECUTION.read, since="2025-11-25", until="2025-11-25"),
    }
)

_ANNOTATIONS = Record(
    {
        "audience": Field(_all(_one_of("user", "assistant"))),
        "priority": Field(_share),
        "lastModified": Field(_text, since="2025-06-18"),
    }
)
_OF_BLOCKS = {"annotations": Field(_ANNOTATIONS.read), "_meta": _META_FIELD}
_MEDIA = Record(
    {"data": Field(_base64), "mimeType": Field(_text), **_OF_BLOCKS}, required=("data", "mimeType")
)
_CONTENTS = Record(
    {
        "uri": Field(_uri),
        "mimeType": Field(_text),
        "text": Field(_text),
        "blob": Field(_base64),
        "_meta": _META_FIELD,
    },
    required=("uri",),
)
_LINK = Record(
    {
        "uri": Field(_uri),
        "name": Field(_text),
        "title": Field(_text),
        "description": Field(_text),
        "mimeType": Field(_text),
        "size": Field(_integer),
        "icons": _ICONS,
        **_OF_BLOCKS,
    },
    required=("uri", "name"),
)
_BLOCKS = {
    "text": Kind(Record({"text": Field(_text), **_OF_BLOCKS}, required=("text",))),
    "image": Kind(_MEDIA),
    "resource": Kind(Record({"resource": Field(_contents), **_OF_BLOCKS}, required=("resource",))),
    "audio": Kind(_MEDIA, since="2025-03-26"),
    "resource_link": Kind(_LINK, since="2025-06-18"),
}

_IMPLEMENTATION = Record(
    {
        "name": Field(_text),
        "version": Field(_text),
        "title": Field(_text),
        "description": Field(_text),
        "websiteUrl": Field(_uri),
        "icons": _ICONS,
    },
    required=("name", "version"),
)
_RESULT_META = Record({META + "serverInfo": Field(_IMPLEMENTATION.read, since=MODERN)})
#: What a result says elsewhere, and what only results of other versions or methods say.
_NOT_EXTRA = dict.fromkeys(
    (
        *("content", "structuredContent", "isError", "resultType"),
        *("ttlMs", "cacheScope", "inputRequests", "requestState", "task"),
    ),
    Field(_never),
)
_EXTRA = Record({"_meta": Field(_RESULT_META.read), **_NOT_EXTRA})
