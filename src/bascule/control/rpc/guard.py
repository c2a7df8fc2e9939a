"""Who calls: the bearer token of a call's metadata, and what its role allows.

A certificate of the caller's that names a node (``spiffe://DOMAIN/node/NAME``) binds its calls to
that name: a token of another name is refused on that connection.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from bascule.asgi.errors import Refused, as_refused
from bascule.asgi.guard import STILL, TOKENS_STATE
from bascule.asgi.token_looks import TokenLooks
from bascule.asgi.verifier import Recaller
from bascule.audit.events import AccessRefused
from bascule.auth.identity import Permission, Principal
from bascule.clock import Clock
from bascule.control.rpc.calls import Call, Context
from bascule.control.rpc.refusals import status_of
from bascule.errors import BasculeError
from bascule.model.worker import MAX_WORKERS, WORKER_METADATA

_BEARER = re.compile(r"bearer +([\x21-\x7e]+)", re.IGNORECASE)
_NODE = re.compile(r"spiffe://[^/]+/node/(.+)")
_NUMBER = re.compile(r"[0-9]{1,3}", re.ASCII)
_TURNED_AWAY: Mapping[str, int] = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}


class RpcGuard:
    """What stands before every method. ``on_refused`` is told of who was turned away."""

    def __init__(
        self,
        tokens: Recaller,
        clock: Clock,
        on_refused: Callable[[AccessRefused], None] | None = None,
        *,
        own: bool = False,
    ) -> None:
        """Look at tokens; ``own``: they are those of the control plane's own nodes."""
        self._own = own
        self._tokens = tokens
        self._looks = TokenLooks(clock)
        self._on_refused = on_refused
        self._series, self._numbers = secrets.token_hex(4), count(1)

    async def admit(
        self,
        context: Context,
        method: str,
        permission: Permission,
    ) -> Call:
        """Return the call of somebody who may make it; raise for others."""
        principal: Principal | None = None
        try:
            principal = await self._principal(_token(context))
            _refuse_another_name(principal, context)
            worker = _worker(context)
            if not principal.may(permission):
                words = f"role {principal.role} does not allow {permission}"
                raise Refused("forbidden", words, details={"permission": permission})
        except BasculeError as error:
            self._tell(error, context, method, principal)
            raise
        still = partial(self._principal, _token(context))
        scope = {"principal": principal, STILL: still, TOKENS_STATE: self._tokens.state}
        return Call(principal, partial(self._looks.refuse_ended, scope), worker, self._own)

    async def _principal(self, token: str) -> Principal:
        found = await self._tokens.still(token)
        if found is None:
            raise Refused("unauthenticated", "the token is not valid, or no longer")
        return found

    def _tell(
        self,
        error: BasculeError,
        context: Context,
        method: str,
        principal: Principal | None,
    ) -> None:
        refused = as_refused(error)
        status = refused and _TURNED_AWAY.get(status_of(refused.code).name)
        if self._on_refused is None or refused is None or status is None:
            return
        self._on_refused(
            AccessRefused(
                request_id=f"{self._series}{next(self._numbers):08x}",
                method="POST",
                path=method,
                status=status,
                code=refused.code,
                message=str(refused),
                caller=None if principal is None else principal.name,
                client=context.peer(),
            )
        )


def _token(context: Context) -> str:
    given = [
        str(value) for key, value in context.invocation_metadata() or () if key == "authorization"
    ]
    found = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise Refused(
            "unauthenticated", "authorization: one bearer token is needed in the metadata"
        )
    return found[1]


def _worker(context: Context) -> int | None:
    given = [
        str(value) for key, value in context.invocation_metadata() or () if key == WORKER_METADATA
    ]
    if not given:
        return None
    number = int(given[0]) if len(given) == 1 and _NUMBER.fullmatch(given[0]) else 0
    if not 1 <= number <= MAX_WORKERS:
        words = f"{WORKER_METADATA}: must be a number from 1 to {MAX_WORKERS}, if it is given"
        raise Refused("invalid_request", words, details={"field": WORKER_METADATA})
    return number


def _refuse_another_name(principal: Principal, context: Context) -> None:
    shown = (value.decode() for value in context.auth_context().get("peer_spiffe_id", ()))
    named = [found[1] for found in map(_NODE.fullmatch, shown) if found is not None]
    if named and named != [principal.name]:
        words = f"the certificate is of node {named[0]!r}, and the token of {principal.name!r}"
        raise Refused("forbidden", words)
