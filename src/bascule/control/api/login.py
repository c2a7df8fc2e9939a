"""How the admin page logs in and out: no cookie, but a token that it sends as everybody does.

A browser sends a cookie to every port of a host. The page keeps its token in the storage of its
origin, which no other port can read.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, BodyRule, GuardedRoute, route
from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import only_parameters
from bascule.auth.links import InvalidCode, Links, page_role
from bascule.auth.page_uses import IDLE_SECONDS
from bascule.auth.token_record import TokenRecord
from bascule.auth.tokens import Minted, Tokens
from bascule.clock import rfc3339
from bascule.control.api.query import acting, principal
from bascule.wire.api.addresses import LOGIN, LOGOUT
from bascule.wire.api.login import LinkShown, LoggedIn, Login
from bascule.wire.api.tokens import TokenEnded

#: Anybody may send one, and a code is short.
_BODY = BodyRule(max_bytes=4_096)


def login_routes(tokens: Tokens, links: Links) -> list[GuardedRoute]:
    """Return the routes by which a page gets its token, and ends it."""

    async def login(request: Request) -> Response:
        """Exchange the code of a link for the token of a page; with look, show whose it will be."""
        only_parameters(request)
        wanted = await read_as(request, Login)
        try:
            if wanted.look:
                return json_response(_shown(await links.look(wanted.code)))
            return json_response(_logged_in(await links.exchange(wanted.code)))
        except InvalidCode as error:
            raise Refused(error.code, str(error)) from None

    async def logout(request: Request) -> Response:
        """End the token of the page that asks; its open streams end with it."""
        only_parameters(request)
        asking = principal(request)
        if not asking.page:
            raise Refused(
                "forbidden",
                "this is not the token of a page; end it with: "
                f"bascule tokens revoke {asking.token_id}",
            )
        await tokens.revoke(asking.token_id, by=acting(request))
        return json_response(TokenEnded(asking.token_id))

    return [
        route(LOGIN, login, ["POST"], permission=OPEN, body=_BODY),
        route(LOGOUT, logout, ["POST"], permission="identity:read"),
    ]


def _shown(link: TokenRecord) -> LinkShown:
    return LinkShown(
        role=page_role(link),
        person=link.person,
        task_id=link.task_id,
        made_by=link.made_by,
        expires_at=rfc3339(link.expires_at),
    )


def _logged_in(page: Minted) -> LoggedIn:
    record = page.record
    return LoggedIn(
        token=page.token,
        token_id=record.id,
        role=page_role(record),
        person=record.person,
        task_id=record.task_id,
        expires_at=rfc3339(record.expires_at),
        idle_seconds=int(IDLE_SECONDS),
    )
