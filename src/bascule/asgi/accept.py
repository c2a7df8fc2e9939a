"""Which of two media types a caller would rather have, by its Accept header (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re

from starlette.requests import Request

JSON = "application/json"
TOML = "application/toml"
_QUALITY = re.compile(r"\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*", re.ASCII | re.IGNORECASE)


def prefers(request: Request, media_type: str, *, to: str) -> bool:
    """Say whether a caller names a type, and does not want the other as much by its name."""
    ranges = _ranges(",".join(request.headers.getlist("accept")))
    wanted = ranges.get(media_type, 0.0)
    if to in ranges:
        return wanted > ranges[to]
    group = f"{to.partition('/')[0]}/*"
    return wanted > 0 and wanted >= ranges.get(group, ranges.get("*/*", 0.0))


def _ranges(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = part.split(";")
        weights = [match for one in parameters if (match := _QUALITY.fullmatch(one))]
        found[name.strip().lower()] = float(weights[0][1]) if weights else 1.0
    return found
