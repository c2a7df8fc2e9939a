"""Seals what approvals and parked turns keep, under a key derived from the one of the secrets."""

from __future__ import annotations

import hashlib
import hmac

from bascule.auth.encryption import NotOpened, decrypted, encrypted
from bascule.control.secret_keys import Keys

_LABEL = b"bascule approvals"


class SecretSealer:
    """A ``Sealer`` of a data directory. What an earlier key sealed is not opened any more.

    A key that is taken away is missed, and no other made in its place.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._had = False

    def seal(self, name: str, plain: bytes) -> bytes:
        """Return it sealed, for this name and no other; raise KeyUnusable."""
        return encrypted(self._key(), plain, name.encode())

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        """Return what was sealed; None where it was changed, or the key is another one."""
        try:
            return decrypted(self._key(), sealed, name.encode())
        except NotOpened:
            return None

    def _key(self) -> bytes:
        key = self._keys.present() if self._had else self._keys.first()
        self._had = True
        return hmac.digest(key.raw, _LABEL, hashlib.sha256)
