"""Headers that a record sets: which are left to it, and which hold a credential."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bascule.errors import ServerUnavailable
from bascule.model.reference import names_a_credential
from bascule.outbound.references import Reading

# The transports' own: what a record says about them is passed over.
_OWNED = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OWNED_PREFIX = "mcp-param-"
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


async def read_headers(headers: Mapping[str, str], field: str, reading: Reading) -> dict[str, str]:
    """Return the headers of a record's field, resolved, without those that are not its to set."""
    found: dict[str, str] = {}
    for name, text in headers.items():
        lower, place = name.lower(), f"{field}.{name}"
        if lower in _OWNED or lower.startswith(_OWNED_PREFIX):
            continue
        secret = lower in _CREDENTIALS or names_a_credential(lower.replace("-", "_"))
        value = header_text(await reading.value(text, place, secret=secret), place)
        if secret:
            reading.remember(value, secret=True)
        found[name] = value
    return found


def header_text(value: str, field: str) -> str:
    """Return a header's value without white space around it; raise when it is not one line."""
    text = value.strip()
    if _CONTROL.search(text):
        raise ServerUnavailable(f"{field}: holds a line break or another control character")
    return text


def joined(headers: Mapping[str, str], proof: Mapping[str, str]) -> dict[str, str]:
    """Put a credential's headers in the place of the record's own of the same name."""
    names = {name.lower() for name in proof}
    own = {name: text for name, text in headers.items() if name.lower() not in names}
    return own | dict(proof)
