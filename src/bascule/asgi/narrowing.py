"""What a caller over HTTP asks of its session, read from headers or from JSON.

Each is a request of its own, and a session opened with several has what all of them leave.
"""

from __future__ import annotations

import msgspec
from starlette.datastructures import Headers
from starlette.types import Scope

from bascule.asgi.errors import Refused
from bascule.asgi.head import head_of
from bascule.asgi.json import as_struct
from bascule.asgi.parameters import FLAGS as WORDS
from bascule.asgi.parameters import NO_FLAG
from bascule.errors import InvalidRecord, refuse_any
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.session import SessionRequest
from bascule.wire.collector import Findings
from bascule.wire.narrowing import FLAGS, LISTS, NUMBERS, USER, split
from bascule.wire.record_rules import check_selection

_PREFIX = b"x-bascule-"
_FIELDS = {**FLAGS, **LISTS, **NUMBERS}
_KNOWN = {header.lower() for header in _FIELDS}
#: Says for whom, and narrows nothing (``bascule.asgi.speaker``).
_USER = USER.lower()
_MAX_DIGITS = 9
#: How many entries a list may have: it is read while nobody else is answered.
MAX_ENTRIES = 1024


def narrowing(headers: Headers) -> tuple[SessionRequest, ...]:
    """Read the ``X-Bascule-*`` headers: one request, or none of them.

    One that is not known is refused: misspelt, it would leave open what it was to close.
    """
    given = {name.decode("latin-1") for name, _ in headers.raw if name.startswith(_PREFIX)}
    given.discard(_USER)
    if not given:
        return ()
    for unknown in sorted(given - _KNOWN):
        raise _wrong(unknown, f"is not one of: {', '.join(_FIELDS)}")
    said = {header: text for header in _FIELDS if (text := _only(headers, header)) is not None}
    fields = {_FIELDS[header]: _value(header, text) for header, text in said.items()}
    return (msgspec.convert(fields, SessionRequest),)


def narrowing_in(scope: Scope) -> tuple[SessionRequest, ...]:
    """Read the same headers of a request that may well have none."""
    return narrowing(Headers(scope=scope)) if head_of(scope).narrows else ()


def narrowing_of(value: JsonValue, path: str = "mcp") -> SessionRequest:
    """Read the JSON form: ``enabled``, ``server_ids``, tool lists, ``read_only`` and the limit.

    Raise InvalidRecord with every problem, each under ``path``.
    """
    _refuse_long_lists(value, path)
    request = as_struct(value, SessionRequest, path)
    findings = Findings(strict=True)
    check_selection(request, path, findings)
    refuse_any(findings.problems)
    return request


def _refuse_long_lists(value: JsonValue, path: str) -> None:
    given: JsonObject = value if is_object(value) else {}
    above = f"{path}." if path else ""
    refuse_any(
        [
            f"{above}{field}: has more than {MAX_ENTRIES} entries"
            for field in LISTS.values()
            if is_array(items := given.get(field)) and len(items) > MAX_ENTRIES
        ]
    )


def _only(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise _wrong(name, "is given more than once")
    return values[0].strip() if values else None


def _value(header: str, text: str) -> JsonValue:
    """Read a header's value and judge it alone, so that a problem is told under its name."""
    try:
        value = _read(header, text)
        narrowing_of({_FIELDS[header]: value}, "")
    except InvalidRecord as error:
        raise _wrong(header, "; ".join(error.problems)) from None
    except ValueError as error:
        raise _wrong(header, str(error)) from None
    return value


def _read(header: str, text: str) -> JsonValue:
    if header in LISTS:
        return list(split(text))
    if header in FLAGS:
        if text.lower() not in WORDS:
            raise ValueError(NO_FLAG)
        return WORDS[text.lower()]
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise ValueError("must be a whole number")
    return int(text)


def _wrong(header: str, problem: str) -> Refused:
    return Refused("invalid_request", f"{header}: {problem}", details={"header": header})
