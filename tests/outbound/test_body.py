"""Bodies of answers: decompressed however they are cut, and never beyond a limit."""

from __future__ import annotations

import gzip
import zlib

import pytest

from bascule.errors import MalformedReply
from bascule.outbound.body import INFLATE_STEP, Body

MIB = 1024 * 1024


def inflated(encoding: str, data: bytes, limit: int = MIB, step: int = 7) -> bytes:
    body = Body(encoding, limit)
    for start in range(0, len(data), step):
        body.feed(data[start : start + step])
    return body.whole()


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


TEXT = b"the quick brown fox " * 5000


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("", TEXT),
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT)),
        (" X-GZIP ", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:70_000]) + gzip.compress(TEXT[70_000:])),
        ("gzip", gzip.compress(TEXT) + b"\0" * 20),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
    ],
)
@pytest.mark.parametrize("step", [1, 100, 1_000_000])
def test_a_body_is_decompressed_however_it_is_cut(encoding: str, data: bytes, step: int):
    assert inflated(encoding, data, step=step) == TEXT
    assert inflated(encoding, data, limit=len(TEXT), step=step) == TEXT


def test_a_body_that_ends_where_a_step_of_decompressing_ends_is_whole():
    for size in range(INFLATE_STEP - 300, INFLATE_STEP + 600):
        assert len(inflated("deflate", raw_deflate(bytes(size)), step=MIB)) == size


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_an_unknown_encoding_is_refused(encoding: str):
    with pytest.raises(MalformedReply, match="which is not known"):
        inflated(encoding, b"")


def test_an_empty_body_is_empty_in_every_encoding():
    assert [inflated(name, b"") for name in ("", "gzip", "deflate")] == [b""] * 3


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_that_is_cut_or_broken_is_refused(encoding: str):
    whole = gzip.compress(TEXT) if encoding == "gzip" else zlib.compress(TEXT)
    with pytest.raises(MalformedReply, match="ends early"):
        inflated(encoding, whole[:-3])
    with pytest.raises(MalformedReply, match="cannot be read"):
        inflated(encoding, whole[:20] + b"\xff" * 40)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("", TEXT),
        ("gzip", gzip.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("gzip", gzip.compress(b"") * 10_000),  # no bytes at all, for ever
    ],
)
def test_a_body_over_its_limit_is_refused(encoding: str, data: bytes):
    with pytest.raises(MalformedReply, match="over the limit of 1000 bytes"):
        inflated(encoding, data, limit=1000, step=1000)
