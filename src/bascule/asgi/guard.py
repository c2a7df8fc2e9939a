"""What stands before every endpoint: where a request comes from, who sends it, and what it carries.

In this order: Host (DNS rebinding), Origin and Sec-Fetch-Site (other sites in a browser), the
bearer token and for whom it speaks, the route, its permission, and the body. A usual request passes
by lookups of what was checked before; of any other each check is made. A route cannot be made
without saying who may use it, and is shared with other origins only if it names them. Each face
gives its routes to one ``GuardedApp``.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bascule.asgi.answer import Answer
from bascule.asgi.confirmation import Confirms, acting, is_confirmed_at, unconfirmed
from bascule.asgi.connections import SHOWN
from bascule.asgi.errors import ClientGone, Refused, as_refused, error_response, status_of
from bascule.asgi.exchange import EXCHANGE
from bascule.asgi.head import HEAD, Head, read_head
from bascule.asgi.source import check_host, check_site, only
from bascule.asgi.speaker import PERSON, check_named
from bascule.asgi.sse import ABORT, DRAINING
from bascule.asgi.verifier import Recaller, Verifier
from bascule.audit.events import AccessRefused
from bascule.auth.identity import ALLOWED, PERMISSIONS, Permission, Principal
from bascule.errors import SessionRefused
from bascule.model.role import ROLES

Open = Literal["open"]
Access: TypeAlias = Permission | Open
Endpoint: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
#: Turns an error into an answer, in the dialect of a face.
ErrorAnswer: TypeAlias = Callable[[Exception, Scope], Response]
Verify: TypeAlias = Callable[[str], Awaitable[Principal | None]]
#: Declares that a route needs no token; every such route is on a committed list.
OPEN: Final[Open] = "open"
#: The scope's name for what raises once the token of a request is no longer valid: an answer that
#: goes on for long asks it again and again.
STILL: Final = "still"
#: The scope's name for what returns another value after every change of any token; None is unsure.
TOKENS_STATE: Final = "tokens_state"

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0
_TURNED_AWAY = frozenset({401, 403, 421})
_BEARER = re.compile(r"bearer +([\x21-\x7e]+)", re.IGNORECASE)
_SCHEME = b"Bearer "
_LENGTH_DIGITS = 9
#: How many spellings of Host are remembered that were found to be right.
_MAX_HOSTS = 64


class GuardRules(Struct, frozen=True, kw_only=True):
    """Where requests may be addressed to: names without a port."""

    hosts: tuple[str, ...] = LOOPBACK_HOSTS


class BodyRule(Struct, frozen=True, kw_only=True):
    """What body a route takes; without ``media_types``, any."""

    max_bytes: int = MAX_BODY_BYTES
    media_types: tuple[str, ...] = ("application/json",)
    seconds: float = BODY_SECONDS


DEFAULT_BODY = BodyRule()


class GuardedRoute(Route):
    """A route that says who may use it: what its caller's role must allow, or ``OPEN``.

    ``errors`` is for a face whose callers expect errors in another shape than ours, those of the
    guard before it included.
    """

    #: Origins whose pages may use this path and read its answers.
    origins: frozenset[str] = frozenset()

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        methods: Collection[str],
        *,
        permission: Access,
        body: BodyRule = DEFAULT_BODY,
        errors: ErrorAnswer = error_response,
    ) -> None:
        if permission != OPEN and permission not in PERMISSIONS:
            raise ValueError(f"{path}: {permission!r} is neither a permission nor OPEN")
        if not methods:
            raise ValueError(f"{path}: a route needs at least one method")
        super().__init__(path, endpoint, methods=methods)
        self.access: Access = permission
        self.body = body
        self.errors: ErrorAnswer = errors
        self.verbs = frozenset(method.upper() for method in methods)
        #: Whether the admin page has to confirm what it does here, where that is asked of it.
        self.confirms = is_confirmed_at(permission, self.verbs)
        self._roles = frozenset(role for role in ROLES if permission in ALLOWED[role])
        self._media_types = frozenset(one.encode() for one in body.media_types)
        #: All methods of this path, on this route and its neighbours; set by ``GuardedApp``.
        self.allowed = self.verbs

    def shared_with(self, origins: Collection[str]) -> Self:
        """Let pages of these origins (``https://host[:port]``) use the route and read its answers.

        For their browsers there must be a ``cors.preflight_route`` at the same path.
        """
        self.origins = frozenset(origins)
        return self

    def confirmed(self, *, ever: bool = True) -> Self:
        """Have the admin page confirm what it does here, or never, whatever its permission says."""
        self.confirms = ever
        return self

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check method, permission and body, in this order, and run the endpoint."""
        if scope["method"] not in (self.methods or ()):
            allow = ", ".join(sorted(self.allowed))
            raise Refused("method_not_allowed", f"use one of: {allow}", headers={"Allow": allow})
        principal: Principal | None = scope["principal"]
        if principal is None or principal.role not in self._roles:
            _authorise(principal, self.access)
        if self.confirms and principal is not None and principal.unconfirmed:
            raise unconfirmed()
        right, exchange = self._takes(scope[HEAD]), scope.get(EXCHANGE)
        if not right:
            _check_body(Headers(scope=scope), self.body)
        if not right or exchange is None or exchange.more_body:  # else there is nothing to await
            receive = _CappedBody(receive, self.body).receive
        await self.app(scope, receive, send)

    def _takes(self, head: Head) -> bool:
        """Say whether a body is certainly right, if any; of all others the whole check decides."""
        length = head.fields.get(b"content-length")
        if length is None or not head.usual:
            return head.usual
        known = len(length) <= _LENGTH_DIGITS and length.isdigit()
        right = head.fields.get(b"content-type") in self._media_types
        return known and right and int(length) <= self.body.max_bytes


class DirectRoute(GuardedRoute):
    """A route whose endpoint is an ASGI application: no request object is made for it."""

    def __init__(
        self,
        path: str,
        app: ASGIApp,
        methods: Collection[str],
        *,
        permission: Access,
        body: BodyRule = DEFAULT_BODY,
        errors: ErrorAnswer = error_response,
    ) -> None:
        endpoint: Any = app
        super().__init__(path, endpoint, methods, permission=permission, body=body, errors=errors)
        self.app = app
        #: The name of the path's last part, where that alone varies.
        self.last_part = last_part_of(path)


def last_part_of(path: str) -> str | None:
    """Return the name of the last part of a path, if nothing else in it varies."""
    above, _, last = path.rpartition("/")
    named = last.startswith("{") and last.endswith("}") and ":" not in last
    return last[1:-1] if named and "{" not in above else None


route = GuardedRoute
direct_route = DirectRoute


class GuardedApp:
    """The ASGI application of one HTTP server: guarded routes and nothing else.

    Endpoints find ``scope["principal"]`` (None at open routes, unless a token came) and
    ``scope["request_id"]``.
    """

    def __init__(
        self,
        routes: Sequence[GuardedRoute],
        verifier: Verifier,
        rules: GuardRules | None = None,
        *,
        on_refused: Callable[[AccessRefused], None] | None = None,
        confirms: Confirms | None = None,
    ) -> None:
        _refuse_unguarded(routes)
        _tell_neighbours(routes)
        self.routes = tuple(routes)
        self._verifier = verifier
        self._rules = rules or GuardRules()
        self._on_refused = on_refused
        #: Beyond loopback: what a page is asked to show.
        self._confirms = confirms
        self._recall = verifier.recall if isinstance(verifier, Recaller) else None
        self._still = verifier.still if isinstance(verifier, Recaller) else verifier.verify
        self._state = verifier.state if isinstance(verifier, Recaller) else _unsure
        #: Values of Host that were checked, of requests with a valid token.
        self._hosts: set[bytes] = set()
        self._series, self._numbers = secrets.token_hex(4), count(1)
        self._dialects = [one for one in routes if one.errors is not error_response]
        self._shared = [one for one in routes if one.origins]
        self._router = Router(list(routes), redirect_slashes=False, default=_not_found)
        # Most requests are for a few fixed addresses: they need not ask every route in turn.
        self._fixed = {
            (method, one.path): one
            for one in reversed(routes)
            if "{" not in one.path
            for method in one.verbs
        }
        self._under = {
            (method, one.path.rpartition("/")[0]): one
            for one in routes
            if isinstance(one, DirectRoute) and one.last_part is not None
            for method in one.verbs
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._not_http(scope, receive, send)
            return
        scope["request_id"] = f"{self._series}{next(self._numbers):08x}"
        _refuse_strange_exchange(scope, send)
        answer = Answer(scope, send)
        try:
            head = read_head(scope)
            scope["principal"] = self._recognised(head) or await self._examined(scope, answer)
            if self._confirms is not None:
                scope["principal"] = await acting(scope, self._confirms)
            if PERSON in head.fields and scope["principal"] is not None:
                check_named(scope)
            scope[STILL] = partial(self._principal, scope["headers"], self._still)
            scope[TOKENS_STATE] = self._state
            if SHOWN in scope and scope["principal"] is not None:
                scope[SHOWN]()
            await self._endpoint(scope)(scope, receive, answer.send)
        except (ClientGone, ClientDisconnect):
            return
        except asyncio.CancelledError:
            error = shutting_down(scope)
            if error is None:
                raise
            await self._cut_off(error, scope, receive, answer)
        except Exception as error:
            if answer.started:
                raise  # the server cuts the connection, so that half an answer is seen as half
            self._tell_refused(error, scope)
            await self._errors_at(scope)(error, scope)(scope, receive, answer.send)

    async def _not_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _cut_off(
        self, error: Refused, scope: Scope, receive: Receive, answer: Answer
    ) -> None:
        """Tell whoever asked that the server ends before the work does."""
        if answer.started:
            scope[ABORT]()
            return
        await self._errors_at(scope)(error, scope)(scope, receive, answer.send)

    def _tell_refused(self, error: Exception, scope: Scope) -> None:
        """Tell of who was turned away; the query may hold anything and is not told."""
        if self._on_refused is None or not isinstance(error, Refused):
            return
        status = status_of(error.code)
        if status not in _TURNED_AWAY:
            return
        principal, client = scope.get("principal"), scope.get("client")
        self._on_refused(
            AccessRefused(
                request_id=scope["request_id"],
                method=scope["method"],
                path=scope["path"],
                status=status,
                code=error.code,
                message=str(error),
                caller=None if principal is None else principal.name,
                client=client[0] if client else None,
            )
        )

    def _endpoint(self, scope: Scope) -> ASGIApp:
        fixed = self._fixed.get((scope["method"], scope["path"]))
        if fixed is not None and not scope["root_path"]:
            return fixed.handle
        above, _, last = scope["path"].rpartition("/")
        under = self._under.get((scope["method"], above))
        if under is None or under.last_part is None or not last or scope["root_path"]:
            return self._router
        scope["path_params"] = {under.last_part: last}
        return under.handle

    def _errors_at(self, scope: Scope) -> ErrorAnswer:
        """Return how errors look at a path, whether or not the request came as far as its route."""
        return next((one.errors for one in _at(scope, self._dialects)), error_response)

    def _recognised(self, head: Head) -> Principal | None:
        """Return who sends a usual request; None says nothing, and every check is made."""
        if not head.usual or head.fields.get(b"host") not in self._hosts:
            return None
        credentials = head.fields.get(b"authorization", b"")
        if self._recall is None or not credentials.startswith(_SCHEME):
            return None
        return self._recall(credentials[len(_SCHEME) :])

    async def _examined(self, scope: Scope, answer: Answer) -> Principal | None:
        """Make every check; return who sends the request, if it says so."""
        headers = Headers(scope=scope)
        answer.reader = self._reader(headers, scope)
        host = only(headers, "host") or ""
        check_host(host, self._rules.hosts)
        if answer.reader is None:
            check_site(headers, scope)
        principal = await self._principal(scope["headers"], self._verifier.verify)
        if principal is not None and len(self._hosts) < _MAX_HOSTS:
            self._hosts.add(host.encode("latin-1"))
        return principal

    def _reader(self, headers: Headers, scope: Scope) -> str | None:
        """Return the other origin that may read what is answered at this path, errors too."""
        origins = headers.getlist("origin") if self._shared else []
        if len(origins) != 1:
            return None
        shared = any(origins[0] in one.origins for one in _at(scope, self._shared))
        return origins[0] if shared else None

    async def _principal(self, raw: list[tuple[bytes, bytes]], verify: Verify) -> Principal | None:
        """Return who sends a request; a token that is not valid is refused at every route."""
        credentials = only(Headers(raw=raw), "authorization")
        if credentials is None:
            return None
        bearer = _BEARER.fullmatch(credentials)
        try:
            principal = await verify(bearer[1]) if bearer else None
        except SessionRefused as refused:
            raise as_refused(refused) or refused from None
        if principal is None:
            raise _unauthenticated("the token is not valid, has expired or was revoked")
        return principal


def _unsure() -> None:
    """Say that tokens may have changed."""


def _at(scope: Scope, routes: Sequence[GuardedRoute]) -> Iterator[GuardedRoute]:
    """Yield those of some routes that are at the path of a request, whatever its method."""
    return (one for one in routes if one.matches(scope)[0] is not Match.NONE)


def _refuse_strange_exchange(scope: Scope, send: Send) -> None:
    """Make no use of an exchange when a host application stands between: it reads messages."""
    exchange = scope.get(EXCHANGE)
    if exchange is not None and getattr(send, "__self__", None) is not exchange:
        del scope[EXCHANGE]


def shutting_down(scope: Scope) -> Refused | None:
    """Return what a request is told that is cancelled because the server ends, if it does."""
    if DRAINING not in scope or not scope[DRAINING].is_set():
        return None
    return Refused("shutting_down", "the server ends; what became of the request is not known")


def open_routes(app: GuardedApp) -> tuple[str, ...]:
    """List the routes that need no token, as ``GET /path``, for a committed file to compare."""
    return tuple(
        sorted(
            f"{method} {route.path}"
            for route in app.routes
            if route.access == OPEN
            for method in route.verbs
        )
    )


def _authorise(principal: Principal | None, access: Access) -> None:
    if access == OPEN:
        return
    if principal is None:
        raise _unauthenticated("a bearer token is needed")
    if not principal.may(access):
        raise Refused(
            "forbidden",
            f"role {principal.role!r} does not allow {access}",
            details={"permission": access, "role": principal.role},
        )


def _unauthenticated(message: str) -> Refused:
    return Refused("unauthenticated", message, headers={"WWW-Authenticate": "Bearer"})


def _check_body(headers: Headers, rule: BodyRule) -> None:
    length = headers.get("content-length")
    if "transfer-encoding" not in headers and length in {None, "0"}:
        return
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if rule.media_types and media_type not in rule.media_types:
        wanted = " or ".join(rule.media_types)
        raise Refused("unsupported_media_type", f"Content-Type must be {wanted}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused("unsupported_media_type", "a compressed body is not read")
    if length is not None and length.isdigit() and int(length) > rule.max_bytes:
        raise _too_large(rule)


def _too_large(rule: BodyRule) -> Refused:
    return Refused(
        "body_too_large",
        f"a body may have at most {rule.max_bytes} bytes",
        details={"max_bytes": rule.max_bytes},
    )


class _CappedBody:
    """The ``receive`` of a request, with an end to how much and how long."""

    def __init__(self, receive: Receive, rule: BodyRule) -> None:
        self._receive = receive
        self._rule = rule
        self._left = rule.max_bytes
        self._until = asyncio.get_running_loop().time() + rule.seconds
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise Refused("request_timeout", "the body did not come in time") from None
        self._complete = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(self._rule)
        return message


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive, send
    raise Refused("not_found", "there is nothing at this path")


def _refuse_unguarded(routes: Sequence[object]) -> None:
    """Refuse a route that was not made by ``route``, and two that claim the same."""
    seen: set[tuple[str, str]] = set()
    for one in routes:
        if not isinstance(one, GuardedRoute):
            raise TypeError(f"{one!r} does not say who may use it: make it with route()")
        claims = {(one.path, method) for method in one.verbs}
        if claims & seen:
            raise ValueError(f"{one.path}: two routes for the same method")
        seen |= claims


def _tell_neighbours(routes: Sequence[GuardedRoute]) -> None:
    for one in routes:
        one.allowed = frozenset().union(*(r.verbs for r in routes if r.path == one.path))
