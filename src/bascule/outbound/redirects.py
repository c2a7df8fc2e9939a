"""Redirects, followed only within the origin, where the credential of a request belongs."""

from __future__ import annotations

from msgspec.structs import replace

from bascule.errors import ServerUnavailable
from bascule.outbound.http import HttpAnswer, HttpClient, HttpRequest
from bascule.outbound.url import Url

MAX_REDIRECTS = 3

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD = frozenset({307, 308})
_SAFE = frozenset({"GET", "HEAD"})


async def send_within_origin(
    client: HttpClient, request: HttpRequest, first: HttpAnswer | None = None
) -> HttpAnswer:
    """Send a request and follow redirects: three at most, with the same method and body.

    ``first`` is the answer to this very request, if it was sent before.

    A status that would turn a POST into a GET is refused: the request would be lost on the way.
    """
    answer = first or await client.send(request)
    for _ in range(MAX_REDIRECTS):
        if answer.status not in _REDIRECTS:
            return answer
        answer.close()
        request = replace(request, url=_next_hop(answer, request))
        answer = await client.send(request)
    if answer.status not in _REDIRECTS:
        return answer
    answer.close()
    raise ServerUnavailable(f"{request.url.origin} redirects more than {MAX_REDIRECTS} times")


def _next_hop(answer: HttpAnswer, request: HttpRequest) -> Url:
    origin = request.url.origin
    if answer.status not in _KEEP_METHOD and request.method not in _SAFE:
        raise ServerUnavailable(
            f"{origin} answers a {request.method} with a redirect that would not keep it "
            f"(HTTP {answer.status}); the URL in the record is probably not the server's own"
        )
    location = answer.headers.get("Location")
    if not location:
        raise ServerUnavailable(f"{origin} redirects without saying where")
    try:
        target = request.url.join(location)
    except ValueError:
        target = None
    if target is None or target.origin != request.url.origin:
        raise ServerUnavailable(
            f"{origin} redirects to another origin, where our credential does not belong; "
            "if that is the server's new place, put it into the record"
        )
    return target
