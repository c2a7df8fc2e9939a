"""What a browser asks before a page of another origin sends a request: whether it may.

Who may is the guard's to say, and it puts the origin's name on the answer (``GuardedRoute``'s
``shared_with``). Here is what may be sent: methods and headers, and never cookies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from starlette.types import Receive, Scope, Send

from bascule.asgi.guard import OPEN, DirectRoute, ErrorAnswer, GuardedRoute, direct_route
from bascule.asgi.head import head_of

#: For how long a browser need not ask again.
MAX_AGE_SECONDS = 600


def preflight_route(
    path: str,
    methods: Sequence[str],
    headers: Sequence[str],
    *,
    origins: Collection[str],
    errors: ErrorAnswer,
) -> DirectRoute:
    """Return the ``OPTIONS`` of a path that is shared with other origins.

    A name in ``headers`` may end in ``*``: then those that the browser asks for are named.
    """
    app = partial(_preflight, ", ".join(methods), _Names(headers))
    return direct_route(path, app, ["OPTIONS"], permission=OPEN, errors=errors).shared_with(origins)


def shared_routes(
    routes: Iterable[GuardedRoute], headers: Sequence[str], *, origins: Collection[str]
) -> list[GuardedRoute]:
    """Share routes with other origins; return them after what browsers ask before.

    A route that answers ``OPTIONS`` itself is not shared. Without origins nothing changes.
    """
    given = list(routes)
    if not origins:
        return given
    shared = [one for one in given if "OPTIONS" not in one.verbs]
    methods: dict[str, set[str]] = {}
    for one in shared:
        one.shared_with(origins)
        methods.setdefault(one.path, set()).update(one.verbs)
    asked = {one.path: one.errors for one in shared}
    first = [
        preflight_route(path, sorted(methods[path]), headers, origins=origins, errors=errors)
        for path, errors in asked.items()
    ]
    return [*first, *given]


class _Names:
    """Which headers may be sent."""

    def __init__(self, headers: Sequence[str]) -> None:
        self._known = [one for one in headers if not one.endswith("*")]
        starts = "|".join(re.escape(one[:-1]) for one in headers if one.endswith("*"))
        self._open = re.compile(
            rf"(?:{starts or '(?!)'})[\w.~!#$%&'+^`|-]+", re.ASCII | re.IGNORECASE
        )

    def given(self, asked: str) -> str:
        """Return all that are known, and those of the asked that begin like an open one."""
        names = (one.strip() for one in asked.split(","))
        return ", ".join([*self._known, *filter(self._open.fullmatch, names)])


async def _preflight(
    methods: str, names: _Names, scope: Scope, receive: Receive, send: Send
) -> None:
    del receive
    asked = head_of(scope).fields.get(b"access-control-request-headers", b"").decode("latin-1")
    headers = [
        (b"access-control-allow-methods", methods.encode()),
        (b"access-control-allow-headers", names.given(asked).encode()),
        (b"access-control-max-age", b"%d" % MAX_AGE_SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
