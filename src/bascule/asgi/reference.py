"""The description of the API, for programs and for people: two files, open to everybody.

``make generate`` writes them (``checks/openapi.py``, ``checks/api_page.py``); the page is plain
HTML that loads nothing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.guard import OPEN, GuardedRoute, route
from bascule.wire.api.addresses import DOCS, OPENAPI

_FOLDER = Path(__file__).parent
DOCUMENT = _FOLDER / "openapi.json"
PAGE = _FOLDER / "reference.html"


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def reference_routes() -> list[GuardedRoute]:
    async def openapi(request: Request) -> Response:
        """Give this description of the API."""
        del request
        return Response(_content(DOCUMENT), media_type="application/json")

    async def docs(request: Request) -> Response:
        """Show this description of the API as a page."""
        del request
        return Response(_content(PAGE), media_type="text/html")

    return [
        route(OPENAPI, openapi, ["GET"], permission=OPEN),
        route(DOCS, docs, ["GET"], permission=OPEN),
    ]
