"""Session keys in a chat request as the requirements spell them: ``mcp.enabled`` and the like.

They stand beside OpenAI's fields or in ``metadata``, each a JSON value or the same as a string, and
narrow like the ``mcp`` object. Any other key of that form is refused by its name: misspelt, it
would leave open what it was to close. None of them goes upstream.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from bascule.asgi.narrowing import narrowing_of
from bascule.errors import InvalidRecord
from bascule.loop.request import BadChat
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.session import SessionRequest
from bascule.wire.collector import Findings
from bascule.wire.task_config import OBJECT, PREFIX, means_mcp, session_fields

METADATA = "metadata"
#: Where clients put what is not OpenAI's; keys of ours are read beside them and in metadata.
_HOLDERS = (METADATA, "extra_body")
KEYS = tuple(
    PREFIX + field for field in ("enabled", "server_ids", "tool_allowlist", "tool_denylist")
)


def has_ours(given: JsonObject) -> bool:
    """Say whether anything about MCP may stand in a request: beside OpenAI's fields or in them."""
    return any(map(means_mcp, given)) or any(holder in given for holder in _HOLDERS)


def flat_narrowing(given: JsonObject) -> tuple[SessionRequest, ...]:
    """Return what the flat keys of a request ask for, place by place; raise BadChat."""
    for holder in _HOLDERS:
        _refuse_inside(holder, given.get(holder), top=holder == METADATA)
    metadata = given.get(METADATA)
    inside: JsonObject = metadata if is_object(metadata) else {}
    read = (_read("", given), _read(f"{METADATA}.", inside))
    return tuple(request for request in read if request is not None)


def without_ours(given: JsonObject) -> dict[str, JsonValue]:
    """Return what may go upstream of a request: everything that is not about MCP."""
    rest = {key: value for key, value in given.items() if not means_mcp(key)}
    metadata = rest.get(METADATA)
    if is_object(metadata) and any(map(means_mcp, metadata)):
        rest[METADATA] = {key: value for key, value in metadata.items() if not means_mcp(key)}
        if not rest[METADATA]:
            del rest[METADATA]
    return rest


def _refuse_inside(place: str, value: JsonValue, *, top: bool = False) -> None:
    """Raise BadChat for a key of ours where none is read; ``top`` says that it is read here."""
    if is_array(value):
        for item in value:
            _refuse_inside(place, item)
        return
    for key, item in value.items() if is_object(value) else ():
        if means_mcp(key) and not top:
            raise BadChat(
                f"{place}.{key}: is not read here; it stands beside messages or in metadata",
                param=f"{place}.{key}",
            )
        _refuse_inside(f"{place}.{key}", item)


def _read(place: str, fields: JsonObject) -> SessionRequest | None:
    ours = {key: value for key, value in fields.items() if means_mcp(key)}
    if not place:
        ours.pop(OBJECT, None)  # the object has a reader of its own
    for key in ours:
        if key not in KEYS:
            raise BadChat(f"{place}{key}: {_unknown(key)}", param=place + key)
    said = {key: value for key, value in ours.items() if value is not None}
    return _request(place, said) if said else None


def _unknown(key: str) -> str:
    if key == OBJECT:
        return "the mcp object stands beside metadata, not in it"
    close = get_close_matches(key.strip().lower(), KEYS, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(KEYS)}"
    return f"unknown key{meant}"


def _request(place: str, said: JsonObject) -> SessionRequest:
    """Read keys that are known; a problem is told under the name of its key."""
    findings = Findings(strict=True)
    fields = session_fields(said, findings)
    if findings.problems:
        raise _wrong(place, said, findings.problems)
    try:
        return narrowing_of(fields, OBJECT)
    except InvalidRecord as error:
        raise _wrong(place, said, error.problems) from None


def _wrong(place: str, said: JsonObject, problems: Sequence[str]) -> BadChat:
    named = next((key for key in said if problems[0].startswith(key)), OBJECT)
    return BadChat("; ".join(f"{place}{problem}" for problem in problems), param=place + named)
