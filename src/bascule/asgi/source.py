"""Where a request comes from: the name it is addressed to, and on behalf of which site."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from bascule.asgi.errors import Refused

SAFE_METHODS = frozenset({"GET", "HEAD"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")


def check_host(host: str, names: Collection[str]) -> None:
    """Refuse a request that was addressed to another name: a page may have rebound its own."""
    parts = _HOST.fullmatch(host.lower())
    if parts is None or parts[1] not in {name.lower() for name in names}:
        raise Refused("host_refused", "this server does not answer to the name in Host")


def check_site(headers: Headers, scope: Scope) -> None:
    """Refuse what a browser sends on behalf of another site.

    A page on another port of this machine is of the "same site", so only the same origin will
    do. Following a link to a page is harmless and stays possible.
    """
    origin = only(headers, "origin")
    if origin is not None and not _is_own_origin(origin, headers["host"], scope["scheme"]):
        raise Refused("origin_refused", "requests from other origins are refused")
    if headers.get("sec-fetch-site", "none").lower() in {"same-origin", "none"}:
        return
    navigates = headers.get("sec-fetch-mode", "").lower() == "navigate"
    if scope["method"] not in SAFE_METHODS or not navigates:
        raise Refused("origin_refused", "requests from other sites are refused")


def _is_own_origin(origin: str, host: str, scheme: str) -> bool:
    """Say whether an origin is this server; a proxy before it may have ended TLS."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    secure_enough = parts.scheme == "https" or (parts.scheme == "http" and scheme == "http")
    return secure_enough and parts.netloc.lower() == host.lower()


def only(headers: Headers, name: str) -> str | None:
    """Return a header that must not be there twice: two readers could choose differently."""
    values = headers.getlist(name)
    if len(values) > 1:
        raise Refused("invalid_request", f"more than one {name} header")
    return values[0] if values else None
