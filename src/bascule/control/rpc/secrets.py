"""Secrets for nodes elsewhere: one value at a time, for a record that the node serves.

Whether a secret is bound is decided by the record as it stands here: a node that has another one,
or says so, is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeAlias, get_args

from bascule.asgi.errors import Refused
from bascule.control.rpc.calls import Call, Unary
from bascule.control.secrets import ALL_NAMES, Secrets
from bascule.errors import SecretUnbound, SecretUnreadable
from bascule.model.reference import is_secret_name
from bascule.model.secret_use import SecretUse, UserKind
from bascule.wire.pb import node_pb2 as pb

#: Says whether a node serves a server or backend.
Served: TypeAlias = Callable[[Call, SecretUse], Awaitable[bool]]
#: Changes that are told by name; whoever has missed more looks at all.
_TOLD = 1_000


async def serves_all(call: Call, use: SecretUse) -> bool:
    """Say yes: every node serves everything."""
    del call, use
    return True


class SecretRpc:
    """``ResolveSecret``, and what nodes are told of changes.

    ``on_change`` is called when there is something to tell.
    """

    def __init__(
        self, secrets: Secrets, on_change: Callable[[], None], served: Served = serves_all
    ) -> None:
        self._secrets = secrets
        self._on_change = on_change
        self._served = served
        self._names: deque[str] = deque(maxlen=_TOLD)
        #: How many changes there were.
        self.number = 0
        #: Ends the hearing of changes.
        self.close = secrets.subscribe(self._changed)

    def methods(self) -> tuple[Unary[pb.ResolveSecretRequest]]:
        """Return the method, for the service."""
        asked, may = pb.ResolveSecretRequest, "registry:read_secrets"
        return (Unary("ResolveSecret", asked, may, self._resolve),)

    def begin(self, version: str) -> tuple[bytes, ...]:
        """Return what a node is told first that was told of a version before."""
        return () if version == self._secrets.version else self._message([ALL_NAMES])

    def after(self, number: int, known: frozenset[str] | None) -> tuple[bytes, ...]:
        """Return what is told after so many changes, with those names alone that a node knows.

        ``known`` are the names that its records say; None is all.
        """
        missed = self.number - number
        if missed > len(self._names):
            return self._message([ALL_NAMES])
        latest = set(islice(reversed(self._names), missed))
        told = latest if known is None else latest & known
        return self._message(sorted(told)) if missed else ()

    def _message(self, names: Iterable[str]) -> tuple[bytes, ...]:
        said = pb.SecretsChanged(names=names, version=self._secrets.version)
        return (pb.FollowResponse(secrets=said).SerializeToString(),)

    def _changed(self, name: str) -> None:
        self._names.append(name)
        self.number += 1
        self._on_change()

    async def _resolve(self, request: pb.ResolveSecretRequest, call: Call) -> bytes:
        if not is_secret_name(request.name):
            raise _wrong("name", "must be the name of a secret")
        use = self._use(request)
        if not await self._served(call, use):
            words = f"the {use.kind} {use.id!r} is not among those that this node serves"
            raise Refused("forbidden", words)
        try:
            value = await self._secrets.given(request.name, use, to=call.principal.name)
        except KeyError:
            raise Refused("not_found", f"there is no secret named {request.name!r}") from None
        except SecretUnbound as error:
            raise Refused("wrong_state", str(error)) from None
        except SecretUnreadable as error:
            raise Refused("store_unavailable", str(error)) from None
        return pb.ResolveSecretResponse(value=value).SerializeToString()

    def _use(self, request: pb.ResolveSecretRequest) -> SecretUse:
        """Return who is meant, as its record stands here; refuse a node that has another."""
        kind = _KINDS.get(request.kind)
        if kind is None:
            raise _wrong("kind", f"must be one of: {', '.join(_KINDS)}")
        use = self._secrets.use(kind, request.id)
        if use is None or use.digest != request.digest:
            what = "not in the registry" if use is None else "another there than at this node"
            raise Refused(
                "conflict",
                f"the record of the {kind} {request.id!r} is {what}: this node is given secrets "
                "for it once it has what the registry has",
            )
        return use


_KINDS: dict[str, UserKind] = {kind: kind for kind in get_args(UserKind)}


def _wrong(field: str, words: str) -> Refused:
    return Refused("invalid_request", f"{field}: {words}", details={"field": field})
