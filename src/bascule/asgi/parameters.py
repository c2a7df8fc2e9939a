"""The parameters of a request's query: none but those that an endpoint knows.

A misspelt one would leave out what it was to say, and what parameters say is mostly a restriction.
Below: ``errors.py``. Above: endpoints that write, and those whose answers a caller may narrow.
"""

from __future__ import annotations

from difflib import get_close_matches

from starlette.requests import Request

from bascule.asgi.errors import Refused


def only_parameters(request: Request, *names: str) -> None:
    """Refuse parameters of another name, with the nearest one."""
    for name in request.query_params:
        if name not in names:
            near = get_close_matches(name.lower(), names, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise Refused(
                "invalid_request",
                f"{name}: is no parameter here{meant}",
                details={"parameter": name},
            )
