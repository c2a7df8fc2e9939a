"""JSON with one meaning: what two readers could read differently is refused.

Refused on the way in: duplicate keys, NaN and Infinity (``1e999`` included), invalid UTF-8,
lone surrogates, nesting deeper than asked for, input larger than ``MAX_BYTES``. On the way out:
what JSON cannot say (NaN, Infinity, lone surrogates, keys that are not strings). Integers
survive both ways exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import TypeAlias, TypeGuard

import jiter
import msgspec
import orjson

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 64
_PATH_SHOWN = 80
_NEAR = 32  # text with spaces after its colons shows them near its start
_INDENT = b"  "
_BACKSLASH = 0x5C

# A float overflows only by an exponent, or by more digits than any float has. Both leave a mark
# in a shadow of the text: digits become 0, e and E become e, openings become [, and separators
# stay so that neighbours do not run together. A mark is only a suspicion, for strings cast
# shadows too; a second parser, which refuses infinities, then has the word.
_MARKS = {
    **dict.fromkeys(b"0123456789", b"0"),
    **dict.fromkeys(b"eE", b"e"),
    **dict.fromkeys(b"[{", b"["),
    **dict.fromkeys(b'",: \t\r\n]}', b" "),
}
_SHADOW = b"".join(_MARKS.get(byte, b" ") for byte in range(256))
_UNMARKED = bytes(byte for byte in range(256) if byte not in _MARKS)
_EXPONENT = b"0e"
_MANY_DIGITS = b"0" * 309

_PLAIN = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_INDENTED = _PLAIN | orjson.OPT_INDENT_2


class StrictJsonError(ValueError):
    """Text that is not strict JSON, or a value that strict JSON cannot say."""


def loads(data: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES) -> JsonValue:
    """Read one value, or raise ``StrictJsonError`` saying what is wrong with the text."""
    if len(data) > max_bytes:
        raise StrictJsonError(f"{len(data)} bytes, more than {max_bytes}")
    escaped = _BACKSLASH in data and data.find(b"\\u") >= 0  # ``in`` is slow for more than a byte
    if escaped or data.find(b'": ', 0, _NEAR) >= 0:
        return _loads_slowly(data, max_depth)
    try:
        value: JsonValue = orjson.loads(data)
        # What comes back byte for byte said nothing twice and lost nothing: the usual case for
        # text without spaces, and twice as fast as looking for each fault.
        if orjson.dumps(value) != data:
            return _loads_slowly(data, max_depth)
    except orjson.JSONDecodeError as error:
        raise StrictJsonError(str(error)) from None
    except TypeError:  # nested deeper than orjson writes
        return _loads_slowly(data, max_depth)
    if data.count(b"[") + data.count(b"{") > max_depth:
        _refuse_deeper(value, max_depth)
    return value


def _loads_slowly(data: bytes, max_depth: int) -> JsonValue:
    shadow = data.translate(_SHADOW, _UNMARKED)
    try:
        # Both parsers stop at a nesting of their own (200 and 1,024), so depth crashes neither.
        if _EXPONENT in shadow or (len(shadow) >= len(_MANY_DIGITS) and _MANY_DIGITS in shadow):
            orjson.loads(data)
        value: JsonValue = jiter.from_json(data, catch_duplicate_keys=True, allow_inf_nan=False)
    except ValueError as error:
        raise StrictJsonError(str(error)) from None
    if shadow.count(b"[") > max_depth:
        _refuse_deeper(value, max_depth)
    return value


def dumps(value: object, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Write a value compactly, or raise ``StrictJsonError`` naming what JSON cannot say."""
    try:
        text = orjson.dumps(value, None, _PLAIN)
    except TypeError as error:
        return _dumps_unusual(value, max_depth, str(error))
    if text.find(b"null") >= 0 and not _says(text, value):  # orjson writes NaN and Infinity as null
        _refuse_unsayable(value, max_depth)
    if text.count(b"[") + text.count(b"{") > max_depth:
        _refuse_deeper(value, max_depth)
    return text


def _says(text: bytes, value: object) -> bool:
    """Say at once that all is well; what is not is found and named by looking at each place.

    What reads back as equal is all there: no number equals the ``null`` it became. The standard
    library knows tuples as well, which read back as lists.
    """
    try:
        if orjson.loads(text) == value:
            return True
        json.dumps(value, allow_nan=False, check_circular=False)
    except (TypeError, ValueError):
        return False
    return True


def _dumps_unusual(value: object, max_depth: int, complaint: str) -> bytes:
    """Write integers beyond 64 bits, which orjson cannot; name and refuse everything else."""
    _refuse_unsayable(value, max_depth)
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError):
        raise StrictJsonError(complaint) from None


def _refuse_deeper(value: object, max_depth: int) -> None:
    """Walk the containers level by level, so that depth costs no stack.

    Written with indentation, a value shows its depth: only one that is deep needs the walk.
    """
    try:
        if b"\n" + _INDENT * max_depth not in orjson.dumps(value, None, _INDENTED):
            return
    except TypeError:  # integers beyond 64 bits, or nested deeper than orjson writes
        pass
    level = [value]
    for _ in range(max_depth):
        level = [inner for outer in level for inner in _inside(outer) if _is_container(inner)]
        if not level:
            return
    raise StrictJsonError(f"nested deeper than {max_depth}")


def _refuse_unsayable(value: object, max_depth: int) -> None:
    pending: list[tuple[str, int, object]] = [("$", 0, value)]
    while pending:
        path, depth, item = pending.pop()
        problem = _problem(item)
        if problem:
            raise StrictJsonError(f"{path}: {problem}")
        if depth > max_depth:
            raise StrictJsonError(f"nested deeper than {max_depth}")
        pending += [(place, depth + 1, inner) for place, inner in _places(path, item)]


def _problem(value: object) -> str | None:
    """What JSON cannot say about this one value, its contents aside."""
    if isinstance(value, float) and not isfinite(value):
        return f"{value} is not JSON"
    if isinstance(value, str):
        return "a lone surrogate is not text" if _has_surrogate(value) else None
    if _is_object(value):
        return next(filter(None, map(_key_problem, value)), None)
    if value is None or isinstance(value, bool | int | float) or _is_array(value):
        return None
    return f"{type(value).__name__} is not JSON"


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str):
        return f"the key {key!r} is not a string"
    return "a key holds a lone surrogate" if _has_surrogate(key) else None


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _places(path: str, value: object) -> Iterator[tuple[str, object]]:
    if _is_object(value):
        for key, inner in value.items():
            yield f"{path}.{key}"[:_PATH_SHOWN], inner
    elif _is_array(value):
        for index, inner in enumerate(value):
            yield f"{path}[{index}]"[:_PATH_SHOWN], inner


def _inside(value: object) -> Iterable[object]:
    if _is_object(value):
        return value.values()
    return value if _is_array(value) else ()


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list | tuple)


def _is_object(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)
