"""The admin page's files, open to everybody: they are the same for every installation.

What the page shows comes from the API, with a token. Its policy lets nothing in but its own files,
and no text become markup or code; the names of trusted types are the page's own and Svelte's.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, GuardedRoute, route
from bascule.asgi.json import is_unchanged, make_etag
from bascule.wire.api.addresses import PAGE

#: Where ``make web`` builds it.
BUILT: Final = Path(__file__).parent / "page"
_INDEX = "index.html"
_FILE = f"{PAGE}{{file}}"
#: Every path here; none of them is of the API.
PATHS: Final = ("/", PAGE.rstrip("/"), PAGE, _FILE)


def policy(node_url: str | None = None) -> str:
    """Return the page's policy; it may speak to a node elsewhere, if one is named."""
    reached = "'self'" if node_url is None else f"'self' {node_url}"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            f"connect-src {reached}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types bascule svelte-trusted-html",
        )
    )


POLICY: Final = policy()
_NO_DEVICES = ", ".join(
    f"{device}=()"
    for device in (
        *("accelerometer", "camera", "display-capture", "geolocation", "gyroscope"),
        *("magnetometer", "microphone", "midi", "payment", "serial", "usb"),
    )
)
#: A file is asked for again each time, and sent again when it is another.
_HEADERS = {
    "Permissions-Policy": _NO_DEVICES,
    "Cache-Control": "no-cache",
}
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
_UNBUILT = 503


class _File(Struct, frozen=True):
    content: bytes
    etag: str
    media_type: str


def page_routes(folder: Path = BUILT, *, node_url: str | None = None) -> list[GuardedRoute]:
    """Return the routes of the page whose files are in a folder; they are read when first used.

    ``node_url`` is the one other origin that the page may speak to.
    """
    common = {**_HEADERS, "Content-Security-Policy": policy(node_url)}

    @cache
    def names() -> frozenset[str]:
        return frozenset(one.name for one in _files(folder) if one.suffix in _MEDIA_TYPES)

    @cache
    def read(name: str) -> _File:
        path = folder / name
        content = path.read_bytes()
        etag = make_etag(hashlib.sha256(content).hexdigest()[:32])
        return _File(content, etag, _MEDIA_TYPES[path.suffix])

    def answer(request: Request, name: str) -> Response:
        found = read(name)
        headers = {**common, "ETag": found.etag}
        if is_unchanged(request, found.etag):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.media_type)

    async def index(request: Request) -> Response:
        """Show the admin page."""
        if _INDEX not in names():
            return PlainTextResponse(
                "The admin page is not built: run `make web`, then start Bascule again.\n", _UNBUILT
            )
        return answer(request, _INDEX)

    async def file(request: Request) -> Response:
        """Give a file of the admin page."""
        name: str = request.path_params["file"]
        if name not in names():
            raise Refused("not_found", "the admin page has no such file")
        return answer(request, name)

    async def lead(request: Request) -> Response:
        """Lead to the admin page."""
        del request
        return RedirectResponse(PAGE)

    start, above, page, one = PATHS
    return [
        route(start, lead, ["GET"], permission=OPEN),
        route(above, lead, ["GET"], permission=OPEN),
        route(page, index, ["GET"], permission=OPEN),
        route(one, file, ["GET"], permission=OPEN),
    ]


def _files(folder: Path) -> list[Path]:
    try:
        return [one for one in folder.iterdir() if one.is_file()]
    except OSError:
        return []  # a checkout in which nobody has built it
