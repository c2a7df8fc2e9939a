"""Texts and values with credentials planted in them, and every spelling in which they may stand.

Put together here so that no scanner takes this file for a leak.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bascule.policy.known_values import spellings

KNOWN = "p7/Kd+" + 'vQ 9\u00e9w"x3 tail'
KNOWN_LINES = "first-l1ne\nsecond-l1ne\nthird"
AWS_KEY = "AKIA" + "Q3ZK7WXN5PLM2RTV"
GITHUB = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
JWT = "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0In0." + "Xk3-9fLw_2"
PEM = (
    "-----BEGIN "
    "PRIVATE KEY-----\n" + ("MIIEvQ1bA+9/zXc8" * 4 + "\n") * 4 + "-----END PRIVATE KEY-----"
)
ASSIGNED = "db_" + 'password = "xK9#mQ2$vL5n"'
IN_URL = "https://me:" + "s3cr3tw0rd@host/x"

CANARIES = (*spellings(KNOWN), *spellings(KNOWN_LINES), AWS_KEY, GITHUB, JWT, PEM, ASSIGNED, IN_URL)
ORDINARY = (
    "a line of an ordinary file\n", "word ", " ", "\n", "Grüße, ", "\r\n", "x=1; ", "{\"a\": [1]} ",
    "sha256:", "arn:aws:", "tokenizer ", "漢字かな", "abcDEF123", "https://a.b/c ",
)  # fmt: skip
HIDDEN = (
    "\x1b[2J", "\x00", "\u202e", "\U000e0041", "\u200b", "👩\u200d👩\u200d👧", "می\u200cخ",
    "❤\ufe0f", "\ufe0f", "\u200f", "\u2067של\u2069", "\ud800", "\x9b",
)  # fmt: skip


def planted(*kinds: tuple[str, ...], most: int = 30) -> st.SearchStrategy[str]:
    """Texts put together from pieces of these kinds and ordinary ones."""
    pieces = st.one_of(*map(st.sampled_from, (ORDINARY, *kinds)))
    return st.lists(pieces, max_size=most).map("".join)


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON values with these texts in them, some under names that say credential."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | texts
    names = st.sampled_from(["a", "b", "note", "db_password", "api_key", "c\u200bd", "rows"])
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(names, inner, max_size=6),
        max_leaves=25,
    )
