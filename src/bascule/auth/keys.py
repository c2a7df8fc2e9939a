"""The server's key is a root: every use has a key of its own, derived from it by HKDF-SHA256.

Who learns one derived key learns neither the root nor any other.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

KeyLabel = Literal[
    "token-digest",
    "token-row",
    "mcp-session",
    "cursor",
    "journal",
    "wasm-cache",
    "fingerprint",
    "parked-turns",
]

_SIZE = hashlib.sha256().digest_size
_MOST = 255 * _SIZE


def derived(root: bytes, label: KeyLabel) -> bytes:
    """Return the key for one use: 32 bytes, the same at every call."""
    return hkdf_sha256(root, info=f"bascule/{label}".encode())


def hkdf_sha256(secret: bytes, *, info: bytes, salt: bytes = b"", size: int = _SIZE) -> bytes:
    """Return key bytes by RFC 5869 (extract, then expand)."""
    if not 0 < size <= _MOST:
        raise ValueError(f"{size} bytes; HKDF-SHA256 gives 1 to {_MOST}")
    extracted = hmac.digest(salt or bytes(_SIZE), secret, hashlib.sha256)
    found = block = b""
    for number in range(1, -(-size // _SIZE) + 1):
        block = hmac.digest(extracted, block + info + bytes((number,)), hashlib.sha256)
        found += block
    return found[:size]
