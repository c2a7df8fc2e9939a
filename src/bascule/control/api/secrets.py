"""Secrets over HTTP: set one, bind it, list what is shown of them, remove one.

A value is in requests and in no answer. Whom a secret is bound to is read off the registry's record
as it stands, so that whoever binds answers for what is there now.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedRoute, route
from bascule.asgi.json import json_response, read_as
from bascule.asgi.parameters import only_parameters
from bascule.control.api.query import acting
from bascule.control.secrets import Secrets
from bascule.db.private_files import KeyUnusable
from bascule.errors import InvalidRecord
from bascule.model.secret_use import SecretUse, UserKind
from bascule.wire.api.addresses import SECRETS
from bascule.wire.api.secrets import NewSecret, SecretList, SecretRemoved, SecretUser

_CREATED = 201
_OK = 200


def secret_routes(secrets: Secrets) -> list[GuardedRoute]:
    """Return the routes of secrets."""
    made = _Secrets(secrets)
    one = f"{SECRETS}/{{name}}"
    return [
        _route(SECRETS, made.list, "GET"),
        _route(one, made.put, "PUT"),
        _route(one, made.remove, "DELETE"),
        _route(f"{one}/bind", made.bind, "POST"),
        _route(f"{one}/unbind", made.unbind, "POST").confirmed(ever=False),
    ]


def _route(
    path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str
) -> GuardedRoute:
    return route(path, endpoint, [method], permission="secrets:write")


class _Secrets:
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def list(self, request: Request) -> Response:
        """List what is shown of the secrets, by name; never a value."""
        only_parameters(request)
        async with _said():
            return json_response(SecretList(await self._secrets.listing()))

    async def put(self, request: Request) -> Response:
        """Set a secret, as its next version, and bind it to servers and backends besides."""
        name = _name(request)
        wanted = await read_as(request, NewSecret)
        named = [_kind_and_id(user, f"bind[{at}]") for at, user in enumerate(wanted.bind)]
        uses = [
            self._use(kind, user, f"bind[{at}].{kind}") for at, (kind, user) in enumerate(named)
        ]
        async with _said(name):
            await self._secrets.set(name, wanted.value, by=acting(request), bind=uses)
            shown = await self._secrets.shown(name)
        return json_response(shown, _CREATED if shown.version == 1 else _OK)

    async def remove(self, request: Request) -> Response:
        """Remove a secret and its bindings."""
        name = _name(request)
        async with _said(name):
            await self._secrets.remove(name, by=acting(request))
        return json_response(SecretRemoved(name))

    async def bind(self, request: Request) -> Response:
        """Let a server or backend be given a secret, as its record stands now."""
        name = _name(request)
        kind, user = _kind_and_id(await read_as(request, SecretUser), "")
        async with _said(name):
            await self._secrets.bind(name, self._use(kind, user, kind), by=acting(request))
            return json_response(await self._secrets.shown(name))

    async def unbind(self, request: Request) -> Response:
        """Give a secret to a server or backend no more."""
        name = _name(request)
        kind, user = _kind_and_id(await read_as(request, SecretUser), "")
        async with _said(name):
            if not await self._secrets.unbind(name, kind, user, by=acting(request)):
                raise Refused("not_found", f"the secret {name!r} is not bound to {kind} {user!r}")
            return json_response(await self._secrets.shown(name))

    def _use(self, kind: UserKind, user: str, path: str) -> SecretUse:
        use = self._secrets.use(kind, user)
        if use is None:
            raise InvalidRecord([f"{path}: there is no {kind} {user!r}"])
        return use


def _name(request: Request) -> str:
    only_parameters(request)
    return request.path_params["name"]


def _kind_and_id(user: SecretUser, path: str) -> tuple[UserKind, str]:
    if user.server is not None and user.backend is None:
        return "server", user.server
    if user.backend is not None and user.server is None:
        return "backend", user.backend
    where = f"{path}: " if path else ""
    raise InvalidRecord([f"{where}must have one of both: server or backend"])


@asynccontextmanager
async def _said(name: str = "") -> AsyncGenerator[None]:
    """Say in the terms of HTTP what went wrong with a secret."""
    try:
        yield
    except KeyError:
        raise Refused("not_found", f"there is no secret {name!r}") from None
    except KeyUnusable as error:
        raise Refused("store_unavailable", str(error)) from error
