"""Derived keys: HKDF as the RFC has it, and no two uses with the same key."""

from __future__ import annotations

from typing import get_args

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from bascule.auth.keys import KeyLabel, derived, hkdf_sha256

pytestmark = pytest.mark.requirement("security:tokens:derived-keys")

#: RFC 5869, A.1 to A.3: secret, salt, info, size, and what comes of them.
VECTORS = {
    "A.1 basic": (
        b"\x0b" * 22,
        bytes(range(0x0D)),
        bytes(range(0xF0, 0xFA)),
        42,
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    "A.2 long": (
        bytes(range(0x50)),
        bytes(range(0x60, 0xB0)),
        bytes(range(0xB0, 0x100)),
        82,
        (
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
            "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
            "cc30c58179ec3e87c14c01d5c1f3434f1d87"
        ),
    ),
    "A.3 without salt and info": (
        b"\x0b" * 22,
        b"",
        b"",
        42,
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_hkdf_gives_what_the_rfc_says(case: str):
    secret, salt, info, size, expected = VECTORS[case]
    assert hkdf_sha256(secret, salt=salt, info=info, size=size).hex() == expected


@given(
    secret=st.binary(max_size=80),
    salt=st.binary(max_size=80),
    info=st.binary(max_size=80),
    size=st.integers(1, 255 * 32),
)
def test_hkdf_gives_what_another_implementation_gives(
    secret: bytes, salt: bytes, info: bytes, size: int
):
    theirs = HKDF(algorithm=SHA256(), length=size, salt=salt, info=info).derive(secret)
    assert hkdf_sha256(secret, salt=salt, info=info, size=size) == theirs


@pytest.mark.parametrize("size", [0, -1, 255 * 32 + 1])
def test_a_size_that_hkdf_has_not_is_refused(size: int):
    with pytest.raises(ValueError, match="1 to 8160"):
        hkdf_sha256(b"k" * 32, info=b"", size=size)


def test_every_use_has_a_key_of_its_own_that_is_always_the_same():
    root = b"k" * 32
    keys = {label: derived(root, label) for label in get_args(KeyLabel)}
    assert len({root, *keys.values()}) == len(keys) + 1
    assert {len(key) for key in keys.values()} == {32}
    assert all(derived(root, label) == key for label, key in keys.items())
    assert derived(b"j" * 32, "journal") != keys["journal"]
