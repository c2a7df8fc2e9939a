"""What the loop needs of a model's server, in OpenAI's dialect.

Below: nothing. ``http_upstream.py`` and ``rehearsal.py`` are the real ones; ``backends.py`` chooses
by model. Above: the turns of the loop, and the chat door for requests that pass unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

from msgspec import Struct

from bascule.errors import BasculeError


class UpstreamFailed(BasculeError):
    """A model's server refused, failed or went away.

    ``status`` is what it answered, or None when no answer came (502, or 504 when ``timed_out``).
    ``error`` is its own error object in OpenAI's shape, where it gave one. ``backend`` is whose
    failure it is, once somebody knows.
    """

    code = "upstream_failed"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        timed_out: bool = False,
    ) -> None:
        self.status = status
        self.error = error
        self.retry_after = retry_after
        self.timed_out = timed_out
        self.backend: str | None = None
        super().__init__(message)

    def of(self, backend: str) -> Self:
        """Return the failure with its backend named, also in its words."""
        if self.backend is None:
            self.backend = backend
            self.args = (naming(backend, str(self)),)
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
    def name(self) -> str:
        """Return the backend's name."""
        ...

    async def complete(self, body: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        """Return a whole completion object; raise UpstreamFailed, also for a garbled one."""
        ...

    def stream(
        self, body: Mapping[str, Any], *, seconds: float
    ) -> AsyncGenerator[dict[str, Any], None]:
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
