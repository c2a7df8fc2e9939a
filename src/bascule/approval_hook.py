"""For programs that decide on approvals: check a question that Bascule posts, and answer it.

``verify`` is all a receiver needs; docs/approvals.md says the same for other languages.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError

__all__ = ["HookAnswer", "HookDecision", "HookQuestion", "Unverified", "verify"]

KEY_BYTES = 32
#: How far the clocks of both sides may be apart, the way included.
WINDOW_SECONDS = 300
TIMESTAMP = "X-Bascule-Timestamp"
APPROVAL = "X-Bascule-Approval"
SIGNATURE = "X-Bascule-Signature"
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
HookDecision = Literal["approve", "deny", "ask"]


class Unverified(BasculeError):
    """A request that Bascule did not send, or not to be answered now. Answer it with 401."""


class HookAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a program says to a question: yes, no, or that somebody else is to decide."""

    decision: HookDecision
    id: str
    digest: str
    reason: str = ""


class HookQuestion(Struct, frozen=True, kw_only=True):
    """One call that waits for an answer. Times are in seconds since 1970.

    ``arguments_json`` and ``definition_json`` are the very bytes: what will be sent to the tool,
    and the tool as its server lists it. ``decide_at`` is the path of the API to decide at later.
    ``node`` is where the call waits, unless that is the process that asks.
    """

    id: str
    digest: str
    asked_at: float
    expires_at: float
    task: str | None
    server: str
    tool: str
    rule: str
    person: str | None
    caller: str | None
    definition_digest: str
    decide_at: str
    arguments_json: Raw = field(name="arguments")
    definition_json: Raw = field(name="definition")
    node: str | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments of the call."""
        return msgspec.json.decode(self.arguments_json, type=dict[str, Any])

    @property
    def definition(self) -> Mapping[str, Any]:
        """Return the tool's definition: name, description, schema and what else its server says."""
        return msgspec.json.decode(self.definition_json, type=dict[str, Any])

    def answer(self, decision: HookDecision, reason: str = "") -> bytes:
        """Return the body to answer with, as JSON and with status 200."""
        said = HookAnswer(decision=decision, id=self.id, digest=self.digest, reason=reason)
        return msgspec.json.encode(said)


def verify(
    key: str, headers: Mapping[str, str], body: bytes, *, clock: Clock = SYSTEM_CLOCK
) -> HookQuestion:
    """Return the question in a request; raise Unverified unless Bascule signed it just now.

    ``key`` is what ``bascule approvals hook-key`` prints; ValueError if it is not that. ``headers``
    may have their names in any case, ``body`` must be as it came.
    """
    secret = _secret(key)
    given = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (TIMESTAMP, APPROVAL, SIGNATURE) if name.lower() not in given]
    if missing:
        raise Unverified(f"there is no header {missing[0]}")
    timestamp, id, signed = (given[name.lower()] for name in (TIMESTAMP, APPROVAL, SIGNATURE))
    expected = signature(secret, timestamp, id, body)
    if not hmac.compare_digest(expected.encode(), signed.encode("utf-8", "replace")):
        raise Unverified("the signature is not by this key over this timestamp, id and body")
    if not _SECONDS.fullmatch(timestamp) or abs(clock.now() - int(timestamp)) > WINDOW_SECONDS:
        raise Unverified(f"it was not signed within {WINDOW_SECONDS} seconds of the time here")
    try:
        question = msgspec.json.decode(body, type=HookQuestion)
    except msgspec.MsgspecError:
        raise Unverified("the body is not a question of this version of Bascule") from None
    if question.id != id:
        raise Unverified(f"the body is about another approval than {APPROVAL} says")
    return question


def signed_headers(key: bytes, id: str, body: bytes, now: float) -> dict[str, str]:
    """Return what a question is sent with."""
    timestamp = str(int(now))
    return {TIMESTAMP: timestamp, APPROVAL: id, SIGNATURE: signature(key, timestamp, id, body)}


def signature(key: bytes, timestamp: str, id: str, body: bytes) -> str:
    """Return the signature over ``timestamp.id.body``."""
    message = f"{timestamp}.{id}.".encode("utf-8", "replace") + body
    return f"v1={hmac.digest(key, message, hashlib.sha256).hex()}"


def _secret(key: str) -> bytes:
    try:
        secret = bytes.fromhex(key)
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:  # an empty variable must not be a key that anybody knows
        raise ValueError("the key is not the 64 digits that `bascule approvals hook-key` prints")
    return secret
