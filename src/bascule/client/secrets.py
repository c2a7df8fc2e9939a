"""A control plane asked for the secrets of a node's servers and backends."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from bascule.client.http import ApiError, Unreachable
from bascule.client.rpc import RpcSource
from bascule.errors import SecretUnbound
from bascule.model.secret_use import SecretUse
from bascule.wire.pb import node_pb2 as pb

#: What the control plane says to a node that has no right to a secret as its record stands.
_REFUSALS = frozenset({"wrong_state", "conflict", "forbidden", "invalid_request"})


class RpcSecrets:
    """``ResolveSecret``, over the connection of a node."""

    def __init__(self, source: RpcSource) -> None:
        self._source = source

    @property
    def is_followed(self) -> bool:
        """Say whether the control plane is followed: only then it is believed that it refuses."""
        return self._source.is_followed

    async def ask(self, name: str, use: SecretUse) -> str:
        """Return a secret; raise KeyError or SecretUnbound as the control plane refuses.

        Any other BasculeError says that it did not decide.
        """
        asked = pb.ResolveSecretRequest(name=name, kind=use.kind, id=use.id, digest=use.digest)
        try:
            return pb.ResolveSecretResponse.FromString(
                await self._source.ask("ResolveSecret", asked.SerializeToString())
            ).value
        except DecodeError:
            raise Unreachable("the control plane's answer cannot be read") from None
        except ApiError as error:
            if error.code == "not_found":
                raise KeyError(name) from None
            if error.code in _REFUSALS:
                raise SecretUnbound(str(error)) from None
            raise
