"""Answers as they stand on the wire, with what a client must make of them."""

from __future__ import annotations

import gzip
import zlib

from msgspec import Struct

TEXT = b'{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}'


class WireAnswer(Struct, frozen=True):
    """An answer, and whether its connection serves again or the server ends it."""

    name: str
    wire: bytes
    body: bytes = TEXT
    status: int = 200
    method: str = "POST"
    kept: bool = True


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


def answer(*headers: str, body: bytes = b"", status: str = "200 OK", version: str = "1.1") -> bytes:
    """Return an answer of these header lines and this body, as it is."""
    lines = [f"HTTP/{version} {status}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def measured(*headers: str, body: bytes = TEXT, status: str = "200 OK") -> bytes:
    """Return an answer with the length of its body."""
    return answer(*headers, f"Content-Length: {len(body)}", body=body, status=status)


def chunks(*pieces: bytes, extension: str = "", trailers: str = "") -> bytes:
    """Return pieces as chunks, and the last of them."""
    parts = [b"%x%s\r\n%s\r\n" % (len(piece), extension.encode(), piece) for piece in pieces]
    return b"".join(parts) + f"0{extension}\r\n{trailers}\r\n".encode()


def chunked(*pieces: bytes, extension: str = "", trailers: str = "") -> bytes:
    """Return an answer in chunks."""
    body = chunks(*pieces, extension=extension, trailers=trailers)
    return answer("Content-Type: application/json", "Transfer-Encoding: chunked", body=body)


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"

ANSWERS = [
    WireAnswer("length", measured("Content-Type: application/json")),
    WireAnswer("length of nothing", measured(body=b""), b""),
    WireAnswer("no reason", answer("Content-Length: 2", body=b"ok", status="200"), b"ok"),
    WireAnswer("error", measured(status="503 Service Unavailable"), status=503),
    WireAnswer("many headers", measured(*[f"X-{n}: {n}" for n in range(40)])),
    WireAnswer("chunked", chunked(TEXT[:10], TEXT[10:])),
    WireAnswer("one chunk", chunked(TEXT)),
    WireAnswer("no chunk", chunked(), b""),
    WireAnswer("chunk extensions", chunked(TEXT[:9], TEXT[9:], extension=';a=b;c="d"')),
    WireAnswer("trailers", chunked(TEXT, trailers="X-Sum: 1\r\nX-Other: 2\r\n")),
    WireAnswer("until close", answer("Content-Type: text/plain", body=TEXT), kept=False),
    WireAnswer("close", measured("Connection: close"), kept=False),
    WireAnswer("no content", answer(status="204 No Content"), b"", 204),
    WireAnswer("accepted", measured(body=b"", status="202 Accepted"), b"", 202),
    WireAnswer("not modified", answer("Content-Length: 10", status="304 Not Modified"), b"", 304),
    # Whether a body follows all the same is seen only at the end of the connection.
    WireAnswer("head", answer("Content-Length: 10"), b"", method="HEAD", kept=False),
    WireAnswer(
        "head of chunks", answer("Transfer-Encoding: chunked"), b"", method="HEAD", kept=False
    ),
    WireAnswer("get", measured(), method="GET"),
    WireAnswer("gzip", measured("Content-Encoding: gzip", body=gzip.compress(TEXT, mtime=0))),
    WireAnswer("deflate", measured("Content-Encoding: deflate", body=zlib.compress(TEXT))),
    WireAnswer("raw deflate", measured("Content-Encoding: deflate", body=raw_deflate(TEXT))),
    WireAnswer(
        "gzip in chunks",
        answer(
            "Content-Encoding: gzip",
            "Transfer-Encoding: chunked",
            body=chunks(gzip.compress(TEXT, mtime=0)[:20], gzip.compress(TEXT, mtime=0)[20:]),
        ),
    ),
    WireAnswer(
        "gzip until close",
        answer("Content-Encoding: gzip", body=gzip.compress(TEXT, mtime=0)),
        kept=False,
    ),
    WireAnswer("continue", CONTINUE + measured()),
    WireAnswer("hints", HINTS + HINTS + chunked(TEXT)),
    WireAnswer("continue and hints", CONTINUE + HINTS + answer(status="204 No Content"), b"", 204),
    WireAnswer(
        "old and kept",
        answer("Connection: keep-alive", "Content-Length: 2", body=b"ok", version="1.0"),
        b"ok",
    ),
    WireAnswer("old", answer("Content-Length: 2", body=b"ok", version="1.0"), b"ok", kept=False),
    WireAnswer("old until close", answer(body=b"ok", version="1.0"), b"ok", kept=False),
]
