"""The envelope of a secret: AES-256-GCM under a key of its own, which an outer key wraps.

What is authenticated besides says where an envelope belongs: copied to another name, version or
store, or kept from before the outer key was changed, it does not open. Nothing here is printed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from msgspec import Struct, json

from bascule.auth.encryption import decrypted, encrypted
from bascule.auth.key_text import KEY_BYTES

KEY_ID_DIGITS = 16
_KEY_ID = b"bascule secrets key id"
_BINDING = b"bascule secret binding"


class OuterKey:
    """What opens a store: exactly 32 bytes, which no ``repr`` shows."""

    __slots__ = ("_binding", "_key", "id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key of {len(key)} bytes; exactly {KEY_BYTES} are needed")
        self._key = key
        self._binding = hmac.digest(key, _BINDING, hashlib.sha256)
        #: Names the key and tells nothing about it.
        self.id = hmac.digest(key, _KEY_ID, hashlib.sha256).hex()[:KEY_ID_DIGITS]

    def __repr__(self) -> str:
        return f"OuterKey({self.id})"

    @property
    def raw(self) -> bytes:
        """Return the bytes, to be written to a private file."""
        return self._key

    def sign(self, *parts: object) -> bytes:
        """Return what shows that the key's holder wrote these words."""
        return hmac.digest(self._binding, json.encode(parts), hashlib.sha256)


def new_key() -> OuterKey:
    """Return a random key."""
    return OuterKey(secrets.token_bytes(KEY_BYTES))


class Place(Struct, frozen=True):
    """Where an envelope belongs: which store, since when, which secret, and which version."""

    store_id: str
    epoch: int
    name: str
    version: int

    def of_value(self) -> bytes:
        """Return what a value is authenticated with: it stays while the outer key changes."""
        return json.encode((self.store_id, self.name, self.version))

    def of_key(self, outer: OuterKey) -> bytes:
        """Return what the wrapping of a data key is authenticated with."""
        return json.encode((self.store_id, self.epoch, self.name, self.version, outer.id))


class Envelope(Struct, frozen=True):
    """A sealed value, and its data key, wrapped."""

    wrapped: bytes
    sealed: bytes


def seal(outer: OuterKey, place: Place, value: str) -> Envelope:
    """Seal a value under a new data key."""
    data_key = secrets.token_bytes(KEY_BYTES)
    return Envelope(
        wrapped=encrypted(outer.raw, data_key, place.of_key(outer)),
        sealed=encrypted(data_key, value.encode(), place.of_value()),
    )


def unseal(outer: OuterKey, place: Place, envelope: Envelope) -> str:
    """Return the value; raise NotOpened."""
    data_key = decrypted(outer.raw, envelope.wrapped, place.of_key(outer))
    return decrypted(data_key, envelope.sealed, place.of_value()).decode()


def rewrap(old: OuterKey, new: OuterKey, places: tuple[Place, Place], wrapped: bytes) -> bytes:
    """Return a data key wrapped under another outer key, for its place before and after."""
    before, after = places
    data_key = decrypted(old.raw, wrapped, before.of_key(old))
    return encrypted(new.raw, data_key, after.of_key(new))
