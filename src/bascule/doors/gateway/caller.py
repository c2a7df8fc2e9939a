"""Who speaks at the gateway, in which generation, and what their route and headers leave of it."""

from __future__ import annotations

from msgspec import Struct

from bascule.asgi.head import Head
from bascule.auth.identity import Principal
from bascule.doors.gateway.views import View
from bascule.model.session import SessionRequest


class Caller(Struct, frozen=True, gc=False):
    """One request's sender."""

    principal: Principal
    view: View
    #: How its session is narrowed: by the route, at its birth, and by headers.
    requests: tuple[SessionRequest, ...]
    version: str
    modern: bool
    #: What the client says it can do: names such as ``sampling``.
    capabilities: frozenset[str]
    #: Whether it takes a stream for an answer.
    streams: bool
    #: The request's headers, and by which scheme it came.
    head: Head
    scheme: str
    #: The id of its legacy session.
    session_id: str = ""
    #: When that session began, in whole seconds since 1970; 0 for one that began elsewhere.
    born: int | None = None

    @property
    def address(self) -> str:
        """Return where this server is, as the caller addressed it."""
        return f"{self.scheme}://{self.head.fields.get(b'host', b'').decode('latin-1')}"
