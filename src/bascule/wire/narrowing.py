"""A session's own narrowing and its person as HTTP headers, and lists that fit into one line.

Items stand between commas; whatever could be misread there is percent-encoded, so that every server
and every pattern can be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bascule.errors import refuse_any
from bascule.model.person import PERSON_WORDS, is_person_id
from bascule.model.session import SessionRequest

ENABLED = "X-Bascule-Enabled"
SERVERS = "X-Bascule-Servers"
TOOLS_ALLOW = "X-Bascule-Tools-Allow"
TOOLS_DENY = "X-Bascule-Tools-Deny"
READ_ONLY = "X-Bascule-Read-Only"
MAX_OUTPUT = "X-Bascule-Max-Tool-Output-Bytes"
#: For whom a client speaks whose token acts for users; it narrows nothing.
USER = "X-Bascule-User"

#: Which field of a session's request each header gives.
LISTS: Mapping[str, str] = {
    SERVERS: "server_ids",
    TOOLS_ALLOW: "tool_allowlist",
    TOOLS_DENY: "tool_denylist",
}
FLAGS: Mapping[str, str] = {ENABLED: "enabled", READ_ONLY: "read_only"}
NUMBERS: Mapping[str, str] = {MAX_OUTPUT: "max_tool_output_bytes"}

_PLAIN = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~/*?:@!$&'()+;="
)
_CODED = re.compile(r"%([0-9A-Fa-f]{2})")


def headers_of(request: SessionRequest) -> dict[str, str]:
    """Return the headers that say what a session asks for; what it does not say has none."""
    headers = {
        header: joined(items)
        for header, field in LISTS.items()
        if (items := getattr(request, field)) or (items == () and field != "tool_denylist")
    }
    if request.enabled is not None:
        headers[ENABLED] = "true" if request.enabled else "false"
    if request.read_only:
        headers[READ_ONLY] = "true"
    for header, field in NUMBERS.items():
        if getattr(request, field) is not None:
            headers[header] = str(getattr(request, field))
    return headers


def user_header(person: str | None) -> dict[str, str]:
    """Return the header that says for whom a session speaks; raise InvalidRecord."""
    if person is None:
        return {}
    refuse_any([] if is_person_id(person) else [f"person: {PERSON_WORDS}"])
    return {USER: person}


def joined(items: Iterable[str]) -> str:
    """Return a list as one line."""
    return ",".join(_coded(item) for item in items)


def split(line: str) -> tuple[str, ...]:
    """Read a list; raise ValueError when an item is not encoded as it should be."""
    items = (item.strip() for item in line.split(","))
    return tuple(_decoded(item) for item in items if item)


def _coded(item: str) -> str:
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in item.encode("utf-8"))


def _decoded(item: str) -> str:
    if "%" in _CODED.sub("", item):
        raise ValueError(f"{item!r}: a percent sign is written %25")
    if not item.isascii():
        raise ValueError(f"{item!r}: other characters than ASCII are percent-encoded")
    raw = _CODED.sub(lambda code: chr(int(code[1], 16)), item).encode("latin-1")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{item!r}: is not UTF-8 once decoded") from None
