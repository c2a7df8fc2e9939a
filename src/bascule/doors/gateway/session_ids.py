"""The ids of legacy sessions: sealed, not stored.

An id carries what the session is, encrypted under a key of its day; opening one allocates nothing,
a restart loses none, and any node with the root key goes on with it. Behind a point it has the mark
of the worker that keeps what is not in it, such as calls under way. It is no credential: it opens
only beside the token and for the person and route that it was made for. What cannot be opened, for
whatever reason, is one and the same to its caller.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from bascule.auth.identity import Principal
from bascule.auth.keys import hkdf_sha256
from bascule.clock import Clock
from bascule.doors.gateway.per_token import PerToken
from bascule.errors import BasculeError
from bascule.model.session import SessionRequest

MAX_LENGTH = 2048
LIFE_SECONDS = 24 * 3600
MAX_NAME = 128
#: How many ids in use are remembered opened: a request need not open its own again.
MAX_OPENED = 256
#: How many deleted sessions are remembered for one token.
MAX_DELETED = 4096
#: How many tokens have deleted sessions that are remembered.
MAX_TOKENS = 1024
_FORMAT = b"\x01"
_DAY_BYTES = 3
_NONCE_BYTES = 12
_PROCESS_BYTES = 8
_DAY_SECONDS = 86_400


class UnknownSession(BasculeError):
    """No session that the caller may go on with has this id."""


class TooMuchToSeal(BasculeError):
    """What a session is does not fit into an id."""


class Birth(Struct, frozen=True, array_like=True):
    """What a session is, from its first request on."""

    version: str
    client: str
    #: What the client says it can do: the names alone, such as ``elicitation.form``.
    capabilities: tuple[str, ...]
    task: str
    narrowing: tuple[SessionRequest, ...]
    born: int
    token: str
    person: str | None
    #: Of the process that it was born in: what others were told, this one does not know.
    process: bytes = b""


class SessionIds:
    """Seals and opens ids; remembers those that were deleted, for as long as the process runs."""

    def __init__(self, key: bytes, clock: Clock, mark: str = "") -> None:
        self.process = os.urandom(_PROCESS_BYTES)
        self._end = f".{mark}" if mark else ""
        self._root = key
        self._clock = clock
        self._keys: dict[int, AESGCM] = {}
        #: What was opened lately, to save time alone: nothing is lost with it.
        self._opened: dict[tuple[str, str, str, str | None], Birth] = {}
        self._deleted = PerToken[bool](most=MAX_DELETED, tokens=MAX_TOKENS)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Birth).decode

    def __len__(self) -> int:
        """Return how many deleted ones are remembered: all that is kept of any."""
        return len(self._deleted)

    def seal(self, birth: Birth, route: str, principal: Principal) -> str:
        """Return the id of a new session; raise TooMuchToSeal."""
        day = self._today()
        head = _FORMAT + day.to_bytes(_DAY_BYTES)
        nonce = os.urandom(_NONCE_BYTES)
        bound = _bound(head, route, principal, self._end)
        sealed = self._key(day).encrypt(nonce, self._encode(birth), bound)
        text = base64.urlsafe_b64encode(head + nonce + sealed).rstrip(b"=").decode("ascii")
        text += self._end
        if len(text) > MAX_LENGTH:
            raise TooMuchToSeal(
                f"the X-Bascule-* headers narrow by more than a session can carry ({len(text)} of "
                f"{MAX_LENGTH} bytes): give the task a profile or lists of its own instead"
            )
        return text

    def open(self, text: str, route: str, principal: Principal) -> Birth:
        """Return what a session is; raise UnknownSession."""
        key = (text, route, principal.token_id, principal.person)
        birth = self._opened.get(key)
        if birth is None:
            birth = self._unsealed(text, route, principal)
            if len(self._opened) >= MAX_OPENED:
                del self._opened[next(iter(self._opened))]
            self._opened[key] = birth
        if birth.task != principal.task_id or self._clock.now() >= birth.born + LIFE_SECONDS:
            raise UnknownSession
        if self._deleted and self._deleted.get(principal.token_id, _digest(text)):
            raise UnknownSession
        return birth

    def _unsealed(self, text: str, route: str, principal: Principal) -> Birth:
        body, point, mark = text.partition(".")
        sealed = _bytes(body)
        day = int.from_bytes(sealed[len(_FORMAT) : len(_FORMAT) + _DAY_BYTES])
        start = len(_FORMAT) + _DAY_BYTES
        if not sealed.startswith(_FORMAT) or self._today() - day not in (0, 1):
            raise UnknownSession
        nonce, secret = sealed[start : start + _NONCE_BYTES], sealed[start + _NONCE_BYTES :]
        bound = _bound(sealed[:start], route, principal, point + mark)
        try:
            return self._decode(self._key(day).decrypt(nonce, secret, bound))
        except (InvalidTag, ValueError, msgspec.MsgspecError):
            raise UnknownSession from None

    def delete(self, text: str, principal: Principal) -> None:
        """Forget a session that is known to be the caller's."""
        self._deleted.keep(principal.token_id, _digest(text), value=True)

    def _today(self) -> int:
        return int(self._clock.now() // _DAY_SECONDS)

    def _key(self, day: int) -> AESGCM:
        key = self._keys.get(day)
        if key is None:
            self._keys = {one: kept for one, kept in self._keys.items() if abs(day - one) <= 1}
            info = b"bascule/mcp-session/day/%d" % day
            key = self._keys[day] = AESGCM(hkdf_sha256(self._root, info=info))
        return key


def _bound(head: bytes, route: str, principal: Principal, end: str) -> bytes:
    """Return what an id is bound to: format, day, route, token and person; its worker, if any."""
    whose = (head, route, principal.token_id, principal.person)
    return msgspec.msgpack.encode((*whose, end) if end else whose)


def _bytes(text: str) -> bytes:
    """Return the bytes of an id; only the one spelling that was given out counts."""
    if len(text) > MAX_LENGTH:
        raise UnknownSession
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise UnknownSession from None
    if base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii") != text:
        raise UnknownSession
    return sealed


def _digest(text: str) -> bytes:
    return hashlib.blake2s(text.encode("ascii"), digest_size=16).digest()
