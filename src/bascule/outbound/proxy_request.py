"""What a confined server asks of its proxy: read in one way only, or refused.

The same bytes may be read again, by another proxy or by the host, so nothing is passed on that two
readers could understand differently.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from bascule.outbound.url import Url

BAD_REQUEST = "400 Bad Request"
_LENGTH_REQUIRED = "411 Length Required"
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_VERSION = re.compile(r"HTTP/1\.[01]")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_LONGEST_HOST = 253
#: For the proxy, or said anew by it: one connection carries one request.
_OF_THE_HOP = frozenset(
    {"connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "upgrade"}
)


class Refused(Exception):
    """A request that is answered with a status, and goes nowhere."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Wish(Struct, frozen=True, kw_only=True):
    """Where a request wants to go. A tunnel has no words of its own; plain HTTP has a head."""

    url: Url
    tunnel: bool
    method: str = ""
    version: str = ""
    headers: tuple[str, ...] = ()
    #: The bytes of the body; None where only its own end tells.
    length: int | None = 0

    @property
    def host(self) -> str:
        """The host that is asked for, without a dot at its end."""
        return self.url.host

    @property
    def port(self) -> int:
        """The port that is asked for."""
        return self.url.port

    def head(self) -> bytes:
        """Return what the host is told first."""
        return self._words(self.url.target, ())

    def head_for_proxy(self, authorization: str | None) -> bytes:
        """Return what another proxy is told: the whole URL, and what it asks for itself.

        The end of the body must be known: behind it the proxy would read another request.
        """
        if self.length is None:
            raise Refused(_LENGTH_REQUIRED, "behind the node's proxy a body needs a Content-Length")
        own = () if authorization is None else (f"Proxy-Authorization: {authorization}",)
        return self._words(self.url.text, own)

    def _words(self, target: str, own: Sequence[str]) -> bytes:
        first = (f"{self.method} {target} {self.version}", f"Host: {self.url.authority}", *own)
        return "\r\n".join([*first, *self.headers, "Connection: close", "", ""]).encode("ascii")


def read_wish(head: bytes) -> Wish:
    """Return where a request wants to go, or raise ``Refused``."""
    try:
        first, *lines = head.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError as fault:
        raise Refused(BAD_REQUEST, "this is no request of HTTP/1") from fault
    if not _METHOD.fullmatch(method) or not _VERSION.fullmatch(version):
        raise Refused(BAD_REQUEST, "this is no request of HTTP/1")
    headers = [_header(line) for line in lines]
    if method == "CONNECT":
        if not _AUTHORITY.fullmatch(target):
            raise Refused(BAD_REQUEST, "CONNECT names a host and a port, and nothing else")
        return Wish(url=_url(f"https://{target}"), tunnel=True)
    if not target.lower().startswith("http://"):
        raise Refused(BAD_REQUEST, "a proxy is asked with CONNECT, or for an http:// URL")
    kept = tuple(f"{name}:{value}" for name, value in headers if name.lower() not in _OF_THE_HOP)
    return Wish(
        url=_url(target),
        tunnel=False,
        method=method,
        version=version,
        headers=kept,
        length=_length(headers),
    )


def _header(line: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise Refused(BAD_REQUEST, "a header is malformed")
    return found[1], found[2]


def _url(text: str) -> Url:
    try:
        url = Url.parse(text)
    except ValueError as fault:
        raise Refused(BAD_REQUEST, f"the address is malformed: {fault}") from fault
    host = url.host.removesuffix(".")
    if url.has_user or "%" in host or len(host) > _LONGEST_HOST:
        raise Refused(BAD_REQUEST, "an address is a host and a port, without a user or a scope")
    return Url(url.scheme, host, url.port, url.target, has_user=False)


def _length(headers: Sequence[tuple[str, str]]) -> int | None:
    """Return how long a body is; None where it is sent in chunks."""
    lengths = [value.strip() for name, value in headers if name.lower() == "content-length"]
    codings = [value.strip() for name, value in headers if name.lower() == "transfer-encoding"]
    if len(lengths) + len(codings) > 1 or any(coding.lower() != "chunked" for coding in codings):
        raise Refused(BAD_REQUEST, "the length of the body is said twice, or in an unknown way")
    if codings:
        return None
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise Refused(BAD_REQUEST, "the length of the body is no number")
    return int(lengths[0]) if lengths else 0
