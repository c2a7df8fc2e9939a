"""What the loop needs of a model's server, in OpenAI's dialect.

``http_backend.py`` is the real one; ``backends.py`` chooses by model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self, TypeAlias

from msgspec import Struct

from bascule.errors import BasculeError
from bascule.loop.events import CallReport
from bascule.model.json import JsonObject

#: A completion or a chunk of one, as a model's server gave it.
Completion: TypeAlias = dict[str, Any]


class UpstreamFailed(BasculeError):
    """A model's server refused, failed or went away.

    ``status`` is what it answered, or None when no answer came (502, or 504 when ``timed_out``).
    ``error`` is its own error object in OpenAI's shape, where it gave one. ``backend`` is whose
    failure it is, once somebody knows. ``calls`` are the tool calls that were made before it:
    repeating the request would make them again.
    """

    code = "upstream_failed"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error: JsonObject | None = None,
        retry_after: float | None = None,
        timed_out: bool = False,
    ) -> None:
        self.status = status
        self.error = error
        self.retry_after = retry_after
        self.timed_out = timed_out
        self.backend: str | None = None
        self.calls: tuple[CallReport, ...] = ()
        super().__init__(message)

    def of(self, backend: str) -> Self:
        """Return the failure with its backend named, also in its words."""
        if self.backend is None:
            self.backend = backend
            self.args = (naming(backend, str(self)),)
        return self

    def after(self, calls: tuple[CallReport, ...]) -> Self:
        """Return the failure with the tool calls that were made before it."""
        if calls:
            self.calls = calls
            self.args = (f"{self}; tools had run already",)
        return self


def naming(backend: str, message: str) -> str:
    """Return a message that begins with a backend's name."""
    start = f"backend {backend}: "
    return message if message.startswith(start) else start + message


class RawAnswer(Struct, frozen=True):
    """An upstream's answer as it came: status, headers, and the body as it arrives."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncGenerator[bytes, None]


class ChatUpstream(Protocol):
    """One model's server. ``body`` is a chat completion request in OpenAI's form."""

    @property
    def name(self) -> str: ...

    async def complete(self, body: JsonObject, *, seconds: float) -> Completion:
        """Return a whole completion object; raise UpstreamFailed, also for a garbled one."""
        ...

    def stream(self, body: JsonObject, *, seconds: float) -> AsyncGenerator[Completion, None]:
        """Yield completion chunks as they arrive, without ``[DONE]``; raise UpstreamFailed.

        A stream that ends without a finish reason and without ``[DONE]`` was cut: it raises.
        """
        ...

    def forward(self, body: bytes) -> AbstractAsyncContextManager[RawAnswer]:
        """Send a request as it is and give its answer as it comes, errors included."""
        ...

    async def models(self) -> list[str]:
        """Return the names of its models, as it says itself; raise UpstreamFailed."""
        ...
