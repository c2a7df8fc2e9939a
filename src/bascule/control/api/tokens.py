"""Tokens over HTTP: list what is kept of them, make one, end one.

A token is in the answer that makes it and in no other; no answer has its digest.
"""

from __future__ import annotations

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import only_parameters
from bascule.auth.identity import Principal
from bascule.auth.token_request import doubts
from bascule.auth.tokens import Tokens
from bascule.control.api.query import acting, principal
from bascule.control.registry.service import RegistryService
from bascule.model.snapshot import Snapshot
from bascule.wire.api.addresses import TOKENS
from bascule.wire.api.tokens import NewToken, TokenEnded, TokenList, TokenMade

_CREATED = 201


def token_routes(tokens: Tokens, service: RegistryService) -> list[GuardedRoute]:
    """Return the routes of tokens; ``service`` knows which tasks and people there are."""

    async def listing(request: Request) -> Response:
        """List what is kept of the tokens, the oldest first."""
        del request
        return json_response(TokenList(await tokens.listing()))

    async def create(request: Request) -> Response:
        """Make a token; it is in this answer and in no other."""
        only_parameters(request)
        wanted, asking = await read_as(request, NewToken), principal(request)
        minted = await tokens.mint(
            wanted.name or wanted.role,
            wanted.role,
            by=acting(request),
            maker=_answering(asking, service.snapshot()),
            task_id=wanted.task_id,
            ttl_seconds=wanted.ttl_seconds,
            person=wanted.person,
            acts_for_users=wanted.acts_for_users,
            tasks=wanted.tasks,
        )
        answer = TokenMade(
            **asdict(minted.record.shown("valid")),
            token=minted.token,
            warnings=doubts(minted.record, service.snapshot()),
        )
        place = {"Location": f"{TOKENS}/{minted.record.id}"}
        return json_response(answer, _CREATED, headers=place)

    async def end(request: Request) -> Response:
        """End a token from its next use on."""
        token_id: str = request.path_params["id"]
        if not await tokens.revoke(token_id, by=acting(request)):
            raise Refused("not_found", f"there is no token {token_id!r}")
        return json_response(TokenEnded(token_id))

    return [
        route(TOKENS, listing, ["GET"], permission="tokens:write"),
        route(TOKENS, create, ["POST"], permission="tokens:write"),
        route(f"{TOKENS}/{{id}}", end, ["DELETE"], permission="tokens:write"),
    ]


def _answering(asking: Principal, registry: Snapshot) -> str:
    """Return who answers for a token: whoever asks for it, or the person who made their token."""
    made_by = asking.made_by if asking.made_by in registry.users else None
    return asking.person or made_by or asking.name
