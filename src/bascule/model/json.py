"""JSON values as Python holds them, and the two questions to ask of one of unknown shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
else:
    JsonValue = Any  # msgspec knows no recursive type, and takes a value of this one as it comes

JsonObject = Mapping[str, JsonValue]


#: What parsers give for everything but objects: no need to ask whether it is a mapping.
_NO_OBJECTS = frozenset({type(None), bool, int, float, str, list})


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Say whether a value is a JSON object."""
    kind = type(value)
    return kind is dict or (kind not in _NO_OBJECTS and isinstance(value, Mapping))


def objects(value: object) -> Iterator[JsonObject]:
    """Return the objects in an array; none where the value is not one."""
    return filter(is_object, value) if is_array(value) else iter(())


def paths(table: JsonObject, above: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Yield everything in tables of tables by its dotted path, the tables too."""
    for name, value in table.items():
        path = f"{above}.{name}" if above else name
        yield path, value
        if is_object(value):
            yield from paths(value, path)


def is_array(value: object) -> TypeGuard[Sequence[Any]]:
    """Say whether a value is a JSON array."""
    return isinstance(value, (list, tuple))
