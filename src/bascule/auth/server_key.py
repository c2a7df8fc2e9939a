"""The key of a server: in a private file of its data directory, or in ``BASCULE_SERVER_KEY``.

Replicas that share a database are given the same one. Whatever is derived from it, the digests and
seals of tokens, ids of sessions, cursors, the key of a journal, is then the same at all of them.
Who keeps something under the key keeps its fingerprint beside it, and finds out at the next start
that the key is another. The variable stays in the environment: no server and no guest is given it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hmac import compare_digest
from pathlib import Path

from bascule.auth.key_text import KEY_BYTES, key_of_text
from bascule.auth.keys import derived
from bascule.db.private_files import KeyUnusable, private_key, read_key

KEY_NAME = "server.key"
VARIABLE = "BASCULE_SERVER_KEY"
#: What is kept under the key, beside it.
TOKENS_NAME = "tokens.db"
#: How a key comes back, in the words of every refusal.
HOW_TO_GIVE = f"put it back from a backup (mode 0600), or give it in {VARIABLE}"


def server_key(path: Path, environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the key of the server whose file this is; made now if this is its first start.

    Raise KeyUnusable where there is none and tokens were kept under one.
    """
    key = given_key(path, environ)
    if key is not None:
        return key
    tokens = path.with_name(TOKENS_NAME)
    if tokens.exists():
        raise KeyUnusable(
            f"{path}: is missing, and {tokens} was written under it; {HOW_TO_GIVE}. If it is lost, "
            f"so are the tokens: move {tokens} away and make them again"
        )
    return private_key(path, KEY_BYTES)


def given_key(path: Path, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """Return the key that is there, in the file or the variable; None if there is none."""
    text = environ.get(VARIABLE)
    given = None if text is None else key_of_text(text, VARIABLE)
    try:
        kept = read_key(path, KEY_BYTES)
    except FileNotFoundError:
        return given
    if given is not None and not compare_digest(given, kept):
        raise KeyUnusable(
            f"{VARIABLE} and {path} are two different keys; take one of them away: that of the "
            "other replicas, or of the tokens that are in use, is the right one"
        )
    return kept


def fingerprint(key: bytes) -> str:
    """Return what tells keys apart, and tells nothing about them."""
    return derived(key, "fingerprint").hex()
