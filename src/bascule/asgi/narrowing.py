"""What a caller over HTTP asks of its session: from headers, from JSON, or from both.

Both forms only narrow what the caller's task allows, and given together they narrow together.
Below: ``bascule.wire``. Above: the doors that open sessions for callers (tools, chat).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect
from starlette.datastructures import Headers

from bascule.asgi.errors import Refused
from bascule.errors import InvalidRecord
from bascule.model.json import is_array, is_object
from bascule.model.pattern import Pattern, covers, exclude
from bascule.model.session import SessionRequest
from bascule.wire.collector import Findings, collect
from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS, TOOLS_ALLOW, split
from bascule.wire.record_rules import check_selection

_PREFIX = b"x-bascule-"
_NAMES = (*FLAGS, *LISTS, *NUMBERS)
_KNOWN = {header.lower() for header in _NAMES}
_MAX_DIGITS = 9
#: How many entries a list may have, and how many pairs two lists of patterns may come to: all of
#: it is worked off while nobody else is answered.
MAX_ENTRIES = 1024
MAX_PAIRS = 4096
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def narrowing(headers: Headers) -> SessionRequest | None:
    """Read the ``X-Bascule-*`` headers; None when there is none of them.

    One that is not known is refused: misspelt, it would leave open what it was to close.
    """
    given = {name.decode("latin-1") for name, _ in headers.raw if name.startswith(_PREFIX)}
    if not given:
        return None
    for unknown in sorted(given - _KNOWN):
        raise _wrong(unknown, f"is not one of: {', '.join(_NAMES)}")
    fields: dict[str, Any] = {}
    for header, field in FLAGS.items():
        text = _only(headers, header)
        if text is not None:
            fields[field] = _flag(header, text)
    for header, field in LISTS.items():
        text = _only(headers, header)
        if text is not None:
            fields[field] = _items(header, field, text)
    for header, field in NUMBERS.items():
        text = _only(headers, header)
        if text is not None:
            fields[field] = _number(header, field, text)
    return msgspec.convert(fields, SessionRequest)


def narrowing_of(value: Any, path: str = "mcp") -> SessionRequest:
    """Read the JSON form: ``enabled``, ``server_ids``, tool lists, ``read_only`` and the limit.

    Raise InvalidRecord with every problem, each under ``path``.
    """
    findings = Findings(strict=True)
    _check_lengths(value, path, findings)
    clean = value if findings.problems else collect(_description(), value, path, findings)
    if findings.problems:
        raise InvalidRecord(findings.problems)
    request = msgspec.convert(clean, SessionRequest)
    check_selection(request, path, findings)
    if findings.problems:
        raise InvalidRecord(findings.problems)
    return request


def narrowed(first: SessionRequest | None, second: SessionRequest | None) -> SessionRequest | None:
    """Return what two requests allow together; raise Refused where that cannot be said."""
    if first is None or second is None:
        return first if second is None else second
    said = {first.enabled, second.enabled}
    return SessionRequest(
        enabled=False if False in said else True if True in said else None,
        server_ids=_common(first.server_ids, second.server_ids),
        tool_allowlist=_both(first.tool_allowlist, second.tool_allowlist),
        tool_denylist=tuple(dict.fromkeys((*first.tool_denylist, *second.tool_denylist))),
        read_only=first.read_only or second.read_only,
        max_tool_output_bytes=_least(first.max_tool_output_bytes, second.max_tool_output_bytes),
    )


def _check_lengths(value: Any, path: str, findings: Findings) -> None:
    given: Mapping[str, Any] = value if is_object(value) else {}
    for field in LISTS.values():
        if is_array(given.get(field)) and len(given[field]) > MAX_ENTRIES:
            place = f"{path}.{field}" if path else field
            findings.problem(place, f"has more than {MAX_ENTRIES} entries")


@cache
def _description() -> inspect.Type:
    return inspect.type_info(SessionRequest)


def _only(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise _wrong(name, "is given more than once")
    return values[0].strip() if values else None


def _flag(header: str, text: str) -> bool:
    if text.lower() not in _WORDS:
        raise _wrong(header, "must be true or false")
    return _WORDS[text.lower()]


def _number(header: str, field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise _wrong(header, "must be a whole number")
    try:
        narrowing_of({field: int(text)}, "")
    except InvalidRecord as error:
        raise _wrong(header, "; ".join(error.problems)) from None
    return int(text)


def _items(header: str, field: str, text: str) -> tuple[str, ...]:
    try:
        items = split(text)
        narrowing_of({field: items}, "")
    except ValueError as error:
        raise _wrong(header, str(error)) from None
    except InvalidRecord as error:
        raise _wrong(header, "; ".join(error.problems)) from None
    return items


def _wrong(header: str, problem: str) -> Refused:
    return Refused("invalid_request", f"{header}: {problem}", details={"header": header})


# --- two at once

Strings = tuple[str, ...]


def _common(first: Strings | None, second: Strings | None) -> Strings | None:
    if first is None or second is None:
        return first if second is None else second
    return tuple(item for item in first if item in second)


def _least(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)


def _both(first: Strings | None, second: Strings | None) -> Strings | None:
    """Return patterns for what both lists cover: pair by pair, since either may match."""
    if first is None or second is None:
        return first if second is None else second
    if len(first) * len(second) > MAX_PAIRS:
        raise _wrong(TOOLS_ALLOW, "two long lists are given in two places: give them in one")
    pairs = ((Pattern.parse(a), Pattern.parse(b)) for a in first for b in second)
    return tuple(dict.fromkeys(text for a, b in pairs if (text := _overlap(a, b)) is not None))


def _overlap(a: Pattern, b: Pattern) -> str | None:
    """Return the pattern of what two patterns both cover; None when that is nothing."""
    if a.server is not None and b.server is not None and a.server != b.server:
        return None
    glob = _common_glob(a, b)
    server = a.server if b.server is None else b.server
    return glob if glob is None or server is None else f"{server}/{glob}"


def _common_glob(a: Pattern, b: Pattern) -> str | None:
    for narrow, wide in ((a, b), (b, a)):
        if covers(wide, narrow):
            return narrow.glob
    if exclude(a, b):
        return None
    raise _wrong(
        TOOLS_ALLOW,
        f"{a.text!r} and {b.text!r} are asked for in two places and overlap: give them in one",
    )
