"""Tokens over HTTP: list what is kept of them, make one, end one.

A token is in the answer that makes it and in no other; no answer has its digest. Below:
``bascule.auth.tokens``. Above: a composition root puts these routes beside the registry's.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import only_parameters
from bascule.auth.identity import Role
from bascule.auth.tokens import MAX_TTL_SECONDS, TokenRecord, Tokens
from bascule.control.api.shapes import moment
from bascule.control.registry.service import RegistryService

TOKENS = "/admin/api/tokens"
_CREATED = 201


class NewToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make: what it may do, for whom, for which task if it is a client's, how long."""

    role: Role
    name: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    task_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=MAX_TTL_SECONDS)] | None = None


class TokenShown(Struct, frozen=True, kw_only=True):
    """What is shown of a token."""

    id: str
    name: str
    role: Role
    task_id: str | None
    created_at: str | None
    expires_at: str | None


def token_routes(tokens: Tokens, service: RegistryService) -> list[GuardedRoute]:
    """Return the routes of tokens; ``service`` knows which tasks there are."""

    async def listing(request: Request) -> Response:
        """List what is kept of the tokens, the oldest first."""
        del request
        return json_response({"tokens": [_shown(record) for record in await tokens.records()]})

    async def create(request: Request) -> Response:
        """Make a token; it is in this answer and in no other."""
        only_parameters(request)
        wanted = await read_as(request, NewToken)
        minted = await tokens.mint(
            wanted.name or wanted.role,
            wanted.role,
            task_id=wanted.task_id,
            ttl_seconds=wanted.ttl_seconds,
        )
        shown = msgspec.structs.asdict(_shown(minted.record))
        answer = {**shown, "token": minted.token, "warnings": _warnings(wanted, service)}
        place = {"Location": f"{TOKENS}/{minted.record.id}"}
        return json_response(answer, _CREATED, headers=place)

    async def end(request: Request) -> Response:
        """End a token from its next use on."""
        token_id: str = request.path_params["id"]
        if not await tokens.revoke(token_id):
            raise Refused("not_found", f"there is no token {token_id!r}")
        return json_response({"deleted": token_id})

    return [
        route(TOKENS, listing, ["GET"], permission="tokens:write"),
        route(TOKENS, create, ["POST"], permission="tokens:write"),
        route(f"{TOKENS}/{{id}}", end, ["DELETE"], permission="tokens:write"),
    ]


def _shown(record: TokenRecord) -> TokenShown:
    return TokenShown(
        id=record.id,
        name=record.name,
        role=record.role,
        task_id=record.task_id,
        created_at=moment(record.created_at),
        expires_at=None if record.expires_at is None else moment(record.expires_at),
    )


def _warnings(wanted: NewToken, service: RegistryService) -> list[str]:
    """Say what of a token does nothing yet: its task may be written after it."""
    if wanted.task_id is None or service.view.get("task", wanted.task_id) is not None:
        return []
    return [f"task_id: there is no task {wanted.task_id!r} yet; until there is, calls are refused"]
