"""Seals what a process keeps for later under a key that it has in hand."""

from __future__ import annotations

from bascule.auth.encryption import NotOpened, decrypted, encrypted


class KeySealer:
    """A ``Sealer`` (``bascule.audit.approval_rows``) with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, name: str, plain: bytes) -> bytes:
        """Return it sealed, for this name and no other."""
        return encrypted(self._key, plain, name.encode())

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        """Return what was sealed; None where it was changed, or the key is another one."""
        try:
            return decrypted(self._key, sealed, name.encode())
        except NotOpened:
            return None
