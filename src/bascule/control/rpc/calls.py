"""What a service is made of: methods, each of which says who may call it.

Messages are read after the caller was recognised, and answers are bytes: what many are sent is
encoded once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message
from grpc.aio import ServicerContext
from msgspec import Struct

from bascule.auth.identity import Permission, Principal
from bascule.model.worker import worker_name

M = TypeVar("M", bound=Message)
#: A call as grpc has it.
Context: TypeAlias = "ServicerContext[Message | bytes, Message | bytes]"


class Call(Struct, frozen=True):
    """One call: who made it, and whether their token is still valid."""

    principal: Principal
    #: Raises once it is not; given what happens now, so that many ask once.
    refuse_ended: Callable[[object], Awaitable[None]]
    #: Which of several processes of a node makes it, as that says itself.
    worker: int | None = None
    #: Whether it is made by a node of the control plane's own, for which nobody else speaks.
    own: bool = False

    @property
    def node(self) -> str:
        """Return the identity of a node's process: what follows, reports and keeps a chain.

        What a node is assigned and given goes by the name of its principal.
        """
        return worker_name(self.principal.name, self.worker)


class Unary(Struct, Generic[M], frozen=True):
    """A method with one answer."""

    name: str
    request: type[M]
    permission: Permission
    handle: Callable[[M, Call], Awaitable[bytes]]


class Streaming(Struct, Generic[M], frozen=True):
    """A method with many answers."""

    name: str
    request: type[M]
    permission: Permission
    #: Refuses what it will not do before it returns the stream.
    handle: Callable[[M, Call], Awaitable[AsyncGenerator[bytes, None]]]


class Service(Struct, frozen=True):
    """A service by its full name, with its methods."""

    name: str
    methods: tuple[Unary[Any] | Streaming[Any], ...]
