"""Keys that somebody gives in text: exactly 32 bytes, in hex or base64, and no passphrase."""

from __future__ import annotations

import base64
import re
from binascii import Error

from bascule.db.private_files import KeyUnusable

KEY_BYTES = 32
#: What a key is, and how to make one.
HOW = (
    f"exactly {KEY_BYTES} random bytes in base64 or hex are needed, and no passphrase; make one "
    f"with: openssl rand -base64 {KEY_BYTES}"
)
_HEX = re.compile(rf"[0-9A-Fa-f]{{{2 * KEY_BYTES}}}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")


def key_of_text(text: str, where: str) -> bytes:
    """Return the key that a text holds; raise KeyUnusable, which does not show it."""
    try:
        if _HEX.fullmatch(text):
            return bytes.fromhex(text)
        if _BASE64.fullmatch(text):
            plain = text.rstrip("=").replace("-", "+").replace("_", "/").encode() + b"="
            key = base64.b64decode(plain, validate=True)
            if base64.b64encode(key) == plain:  # else its last bits say that nobody encoded it
                return key
    except (Error, ValueError):
        pass
    raise KeyUnusable(f"{where}: is not a key: {HOW}")
