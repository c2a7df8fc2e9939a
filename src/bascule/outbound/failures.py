"""How an HTTP request fails, told apart by whether a server can have read it.

NotDelivered           nothing was sent, so the request may be sent again
└── Unconnected        no connection: ``why`` is the name, TLS, the port or the time
LaunchDenied           the egress rules refuse the address
OutcomeUnknown         bytes may have left
├── Unanswered         the connection ended before an answer, also a kept one that the server
│                      closes in the moment in which we write
└── BrokenAnswer       the answer is not HTTP, or breaks off
DeadlineExceeded       the answer did not come in time
MalformedReply         the body is over its limit, or cannot be decompressed
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from bascule.errors import NotDelivered, OutcomeUnknown

Why: TypeAlias = Literal["refused", "name", "certificate", "tls", "late", "network"]


class Unconnected(NotDelivered):
    """No connection could be made. ``words`` is the reason alone, without the origin."""

    def __init__(self, origin: str, why: Why, words: str) -> None:
        self.why = why
        self.words = words
        super().__init__(f"cannot connect to {origin}: {words}")


class Unanswered(OutcomeUnknown):
    """The request was sent, and the connection ended before an answer came."""


class BrokenAnswer(OutcomeUnknown):
    """An answer began, and is not HTTP or breaks off."""
