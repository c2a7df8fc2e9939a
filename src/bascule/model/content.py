"""The content blocks of a result: their texts, and the media that a text model cannot read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bascule.model.json import JsonObject, JsonValue, is_array, is_object

_MAX_KIND = 40
_MAX_TYPE = 80


class Media(NamedTuple):
    """One block of media: its base64 text, and how many bytes that stands for."""

    kind: str
    mime_type: str
    data: str
    size: int

    @property
    def note(self) -> str:
        """Return what a text model is told of it."""
        return f"[{self.kind}: {self.mime_type}, {self.size} bytes]"


def media_of(block: JsonObject) -> Media | None:
    """Return the media that a content block holds; None for text and anything else."""
    held = block.get("resource")
    if held is None and "data" not in block:
        return None
    if not is_object(held):
        held = block
    data, mime_type = held.get("data" if held is block else "blob"), held.get("mimeType")
    if not isinstance(data, str) or (held is block and not isinstance(mime_type, str)):
        return None
    kind = str(block.get("type", "unknown"))[:_MAX_KIND]
    shown = mime_type[:_MAX_TYPE] if isinstance(mime_type, str) else "unknown type"
    return Media(kind, shown, data, _decoded_size(data))


def block_text(block: JsonObject) -> str | None:
    """Return the text of a text block or of an embedded resource of text."""
    held = block if block.get("type") == "text" else block.get("resource")
    text = held.get("text") if is_object(held) else None
    return text if isinstance(text, str) else None


def readable(content: Iterable[JsonObject]) -> str:
    """Return what a text model reads of content: its texts, and notes in the place of media."""
    shown, _ = noted(content, None)
    return "\n".join(text for block in shown if (text := block_text(block)) is not None)


def noted(
    content: Iterable[JsonObject], structured: JsonValue
) -> tuple[list[JsonObject], JsonValue]:
    """Return a result as a text model is given it: a note in the place of each medium.

    Structured content that repeats the base64 has the same note there.
    """
    notes: dict[str, str] = {}
    shown: list[JsonObject] = []
    for block in content:
        media = media_of(block)
        if media is None:
            shown.append(block)
        else:
            notes[media.data] = media.note
            shown.append({"type": "text", "text": media.note})
    notes.pop("", None)
    return shown, replaced(structured, notes) if notes else structured


def replaced(value: JsonValue, strings: Mapping[str, str]) -> JsonValue:
    """Return a JSON value in which whole strings stand for others."""
    if isinstance(value, str):
        return strings.get(value, value)
    if is_object(value):
        return {key: replaced(item, strings) for key, item in value.items()}
    if is_array(value):
        return [replaced(item, strings) for item in value]
    return value


def _decoded_size(data: str) -> int:
    return len(data) * 3 // 4 - (data.endswith("=") + data.endswith("=="))
