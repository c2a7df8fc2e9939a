"""AES-256-GCM: bytes that only a key opens, and only beside what they were authenticated with."""

from __future__ import annotations

import secrets

_NONCE_BYTES = 12


class NotOpened(Exception):
    """What was sealed was changed, belongs elsewhere, or is another key's."""


def encrypted(key: bytes, plain: bytes, beside: bytes) -> bytes:
    """Return bytes that only the key opens, beside what they are authenticated with."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - 8 MB

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, beside)


def decrypted(key: bytes, sealed: bytes, beside: bytes) -> bytes:
    """Return what was encrypted; raise NotOpened."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], beside)
    except (InvalidTag, ValueError):  # changed, or too short to be one
        raise NotOpened from None
