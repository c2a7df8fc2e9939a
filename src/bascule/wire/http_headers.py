"""The headers of MCP over HTTP: what names the request, and what tools ask to see in headers.

Modern requests carry method, name and chosen arguments in headers, equal to the body; values that a
header cannot hold travel in base64.
"""

from __future__ import annotations

import base64
import re

from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.whole_words import beginning

SESSION_ID = "Mcp-Session-Id"
PROTOCOL_VERSION = "MCP-Protocol-Version"
METHOD = "Mcp-Method"
NAME = "Mcp-Name"
PARAM_PREFIX = "Mcp-Param-"

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_SENTINEL = re.compile(r"=\?base64\?.*\?=")
_SCALARS = ("string", "integer", "boolean")
_DATA = frozenset({"const", "default", "enum", "examples"})
_TABLES = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_KEYWORD = "x-mcp-header"

#: Where an argument stands, and the header that repeats it.
HeaderPath = tuple[str, tuple[str, ...]]


def header_value(value: str) -> str:
    """Return a text as a header's value; what cannot stand there goes in base64."""
    if _PLAIN.fullmatch(value) and not _SENTINEL.fullmatch(value):
        return value
    encoded = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")
    return f"=?base64?{encoded}?="


def request_headers(version: str, method: str, name: str | None) -> dict[str, str]:
    """Return the headers that every modern request carries."""
    headers = {PROTOCOL_VERSION: version, METHOD: method}
    if name is not None:
        headers[NAME] = header_value(name)
    return headers


def header_paths(schema: JsonObject) -> tuple[HeaderPath, ...]:
    """Return which arguments a tool wants in headers; raise ValueError where it asks nonsense.

    A name must be a header token, unique without regard to case, and stand on a scalar that is
    reached by properties alone.
    """
    found: list[HeaderPath] = []
    _collect(schema, (), found)
    if _count(schema) != len(found):
        raise ValueError(f"{_KEYWORD} stands where no argument is sure to be")
    names = [name.lower() for name, _ in found]
    if len(set(names)) != len(names):
        raise ValueError(f"{_KEYWORD} gives one header name to two arguments")
    return tuple(found)


def _collect(schema: JsonObject, path: tuple[str, ...], found: list[HeaderPath]) -> None:
    properties = schema.get("properties")
    if not is_object(properties):
        return
    for key, sub in properties.items():
        if not is_object(sub):
            continue
        if _KEYWORD in sub:
            found.append((_checked_name(sub), (*path, key)))
        _collect(sub, (*path, key), found)


def _checked_name(schema: JsonObject) -> str:
    name = schema[_KEYWORD]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ValueError(f"{_KEYWORD} {beginning(str(name), 40)!r} is not a header name")
    if schema.get("type") not in _SCALARS:
        raise ValueError(f"{_KEYWORD} {name!r} stands on an argument that is no plain value")
    return name


def _count(value: JsonValue) -> int:
    """Count the keyword wherever a schema may stand; not inside examples or defaults."""
    if is_array(value):
        return sum(map(_count, value))
    if not is_object(value):
        return 0
    return int(_KEYWORD in value) + sum(
        sum(map(_count, item.values())) if key in _TABLES and is_object(item) else _count(item)
        for key, item in value.items()
        if key not in _DATA and key != _KEYWORD
    )


def parameter_headers(paths: tuple[HeaderPath, ...], arguments: JsonValue) -> dict[str, str]:
    """Return the headers that repeat a call's arguments; absent and null ones have none."""
    headers: dict[str, str] = {}
    for name, path in paths:
        value = argument_at(arguments, path)
        if isinstance(value, str | int | float):
            headers[PARAM_PREFIX + name] = header_value(argument_text(value))
    return headers


def argument_at(value: JsonValue, path: tuple[str, ...]) -> JsonValue:
    """Return the argument that stands at a path; None where there is none."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return value


def argument_text(value: str | float) -> str:
    """Return an argument as its header says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
