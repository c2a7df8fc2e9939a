"""Beyond loopback, a page shows a fresh code with whatever would outlive it or give more away.

The token of a page lies in a browser, and beyond loopback more people and programs are between the
two. Whoever takes it can look, and do what an operator does, until it ends; to make tokens, write
secrets, try a command or loosen policy they also need the data directory, where codes are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.types import Scope

from bascule.asgi.errors import Refused
from bascule.asgi.source import SAFE_METHODS, only
from bascule.auth.identity import Permission, Principal

#: Says whether a code confirms what a page asks for (``Links.confirms``).
Confirms: TypeAlias = Callable[[str, Principal], Awaitable[bool]]
HEADER: Final = "x-bascule-confirm"
#: What a page does with these it confirms, unless it only reads or ends something;
#: a route whose method does not say that says it itself (``GuardedRoute.confirmed``).
_CONFIRMED: frozenset[Permission] = frozenset(
    {"tokens:write", "secrets:write", "policy:write", "registry:accept"}
)
_FREE: Final = SAFE_METHODS | {"DELETE"}


def is_confirmed_at(access: str, methods: Collection[str]) -> bool:
    """Say whether a page confirms what it does at a route, by who may use it and how."""
    return access in _CONFIRMED and not _FREE.issuperset(methods)


async def acting(scope: Scope, confirms: Confirms) -> Principal | None:
    """Return who sends a request; a page is confirmed by the code in its header, or it is not."""
    page: Principal | None = scope["principal"]
    if page is None or not page.page or scope["method"] in SAFE_METHODS:
        return page
    code = only(Headers(scope=scope), HEADER)
    if code is not None and await confirms(code, page):
        return page
    return replace(page, unconfirmed=True)


def unconfirmed(what: str = "") -> Refused:
    """Return what a page is refused with that has shown no code, or not a fresh one."""
    where = f"{what}: " if what else ""
    return Refused(
        "confirmation_required",
        f"{where}this process serves more than its own machine, so it takes a code besides the "
        "page's token: make one where the process runs, with `bascule web --confirm`, and send it "
        "in X-Bascule-Confirm",
        details={"header": "X-Bascule-Confirm", "command": "bascule web --confirm"},
    )
