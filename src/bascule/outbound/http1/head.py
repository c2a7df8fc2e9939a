"""The head of a request as bytes, to be kept and sent again, and the headers of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from bascule import __version__
from bascule.errors import NotDelivered
from bascule.outbound.url import Url

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Control characters, and halves of pairs that stand for no byte.
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udc7f\udd00-\udfff]")
_AGENT = f"User-Agent: bascule/{__version__}\r\n"
# The engine's own: two of them would make two readings of one request.
_OWNED = frozenset({"content-length", "transfer-encoding", "expect"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class RequestHead(Struct, frozen=True):
    """Everything of a request but its body, ready to be sent any number of times."""

    url: Url
    method: str
    text: bytes
    #: Whether the connection is not to be kept.
    last: bool

    def __repr__(self) -> str:
        return f"RequestHead({self.method!r}, {self.url!r})"

    def with_body(self, body: bytes | None) -> bytes:
        """Return the request as it is written, in one piece."""
        if body is None and self.method not in _WITH_BODY:
            return self.text + b"\r\n"
        return b"%bContent-Length: %d\r\n\r\n%b" % (self.text, len(body or b""), body or b"")


def request_head(
    method: str, url: Url, headers: Mapping[str, str], *, absolute: bool = False
) -> RequestHead:
    """Return a head; ``absolute`` names the whole URL in it, as proxies want it.

    Raises NotDelivered for what no header can carry, without repeating it.
    """
    target = url.text if absolute else url.target
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    given = {name.lower() for name in headers}
    if "host" not in given:
        lines.append(f"Host: {url.authority}\r\n")
    if "user-agent" not in given:
        lines.append(_AGENT)
    for name, value in headers.items():
        lines.append(_line(name, value))
    text = "".join(lines).encode("utf-8", "surrogateescape")
    return RequestHead(url, method, text, "connection" in given)


def _line(name: str, value: str) -> str:
    if not _TOKEN.fullmatch(name) or name.lower() in _OWNED:
        raise NotDelivered(f"{name[:60]!r} is not the name of a header that can be set")
    if _UNSENDABLE.search(value):
        raise NotDelivered(
            f"the header {name} holds a line break or another character that none can"
        )
    return f"{name}: {value}\r\n"


class Headers(Mapping[str, str]):
    """The headers of an answer, by names in any case; one that came twice is joined by commas."""

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw

    @cached_property
    def _values(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for raw_name, raw_value in self._raw:
            name, value = _text(raw_name).lower(), _text(raw_value)
            found[name] = f"{found[name]}, {value}" if name in found else value
        return found

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
