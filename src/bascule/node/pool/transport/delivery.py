"""One HTTP request on its way: sent at most once, and the error says whether it left.

Above: the HTTP transports (``http``, ``sse``). Below: ``upstream``.
"""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
from yarl import URL

from bascule.errors import NotDelivered, OutcomeUnknown
from bascule.node.pool.transport.upstream import Upstream

_UNAUTHORIZED = 401


class NobodyListens(NotDelivered):
    """The port is closed: the server is gone, or just being started again."""


async def deliver(
    upstream: Upstream,
    verb: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    url: URL | str | None = None,
) -> aiohttp.ClientResponse:
    """Send a request and return the answer once its head is here; the caller closes it.

    A credential that is refused (401) is renewed once, since nothing was carried out. Raises
    ``NotDelivered`` when no server can have read the request, else ``OutcomeUnknown``.
    """
    response = await _send(upstream, verb, body, headers, url)
    if response.status != _UNAUTHORIZED:
        return response
    try:
        renewed = await upstream.refused(response.request_info.headers)
    except BaseException:
        response.close()
        raise
    if not renewed:
        return response
    response.release()
    return await _send(upstream, verb, body, headers, url)


async def _send(
    upstream: Upstream,
    verb: str,
    body: bytes | None,
    headers: Mapping[str, str],
    url: URL | str | None,
) -> aiohttp.ClientResponse:
    complete = {**await upstream.headers(), **headers}
    if upstream.session.closed:
        raise NotDelivered("the connection is closed")
    try:
        return await upstream.send(verb, body, complete, url=url)
    except aiohttp.ClientConnectorError as error:
        refused = isinstance(error.os_error, ConnectionRefusedError)
        message = f"cannot connect to {upstream.origin}: {words(error)}"
        raise (NobodyListens if refused else NotDelivered)(message) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise NotDelivered(f"cannot connect to {upstream.origin} in time") from error
    except aiohttp.InvalidURL as error:
        raise NotDelivered("the URL cannot be used") from error
    except (aiohttp.ClientError, OSError) as error:
        raise OutcomeUnknown(f"the connection was lost: {words(error)}") from error


def words(error: BaseException) -> str:
    """Return what an error says, or at least what it is."""
    return str(error)[:200] or type(error).__name__
