"""The tool descriptor: a server's tool as it was listed, and the name a model sees.

Annotations are the server's own word: kept as they came, never trusted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bascule.model.json import is_object
from bascule.model.name import model_name
from bascule.model.server import ServerRecord


class ToolDescriptor(Struct, frozen=True, kw_only=True):
    """One tool of one server. ``definition`` is the whole listed object, unknown fields too."""

    server_id: str
    name: str
    model_name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Any
    annotations: Any
    definition: Mapping[str, Any]
    digest: str

    @property
    def title(self) -> str:
        """Return the human title the server gives, or the native name."""
        title = self.definition.get("title")
        return title if isinstance(title, str) and title else self.name


def describe(record: ServerRecord, definition: Mapping[str, Any]) -> ToolDescriptor:
    """Make the descriptor of a listed tool; raise ValueError when it cannot be used."""
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("the tool has no name")
    schema = definition.get("inputSchema")
    if not is_object(schema) or schema.get("type") != "object":
        raise ValueError(f"tool {name!r}: inputSchema must be an object schema (type: object)")
    description = definition.get("description", "")
    return ToolDescriptor(
        server_id=record.server_id,
        name=name,
        model_name=model_name(record.tool_namespace, name),
        description=description if isinstance(description, str) else "",
        input_schema=schema,
        output_schema=definition.get("outputSchema"),
        annotations=definition.get("annotations"),
        definition=definition,
        digest=definition_digest(definition),
    )


def definition_digest(definition: Mapping[str, Any]) -> str:
    """Return a digest of every leaf of a definition, whatever the order of its keys."""
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
