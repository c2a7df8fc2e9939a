"""A URL that a request can go to: checked and taken apart once, and never changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote, urlencode, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")
_IPV6 = re.compile(r"[0-9a-f:.]+(?:%[a-z0-9_.~-]+)?")
_UNUSABLE = re.compile(r"[\x00-\x20\x7f\\]")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What stands for itself in a path and in a query; the percent sign was looked at before.
_IN_PATH = "/:@!$&'()*+,;=~%|"
_IN_QUERY = _IN_PATH + "?"


class Url:
    """An absolute http or https URL without fragment; a user name in it is noted and dropped."""

    __slots__ = ("has_user", "host", "origin", "port", "scheme", "target", "text")

    def __init__(self, scheme: str, host: str, port: int, target: str, *, has_user: bool) -> None:
        self.scheme = scheme
        #: In small letters and ASCII; an IPv6 address without brackets.
        self.host = host
        self.port = port
        #: Path and query, as they are sent.
        self.target = target
        self.origin = f"{scheme}://{_authority(scheme, host, port)}"
        self.text = f"{self.origin}{target}"
        self.has_user = has_user

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the URL; raise ValueError, which does not repeat the text, for anything else."""
        if _UNUSABLE.search(text):
            raise ValueError("a space, a control character or a backslash in the URL")
        parts = urlsplit(text)
        if parts.scheme not in _PORTS:
            raise ValueError("neither http nor https")
        host = _host(parts.hostname or "")
        port = _PORTS[parts.scheme] if parts.port is None else parts.port
        if not port:
            raise ValueError("the port is 0")
        target = _quoted(parts.path or "/", _IN_PATH)
        if parts.query:
            target = f"{target}?{_quoted(parts.query, _IN_QUERY)}"
        return cls(parts.scheme, host, port, target, has_user="@" in parts.netloc)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Url({self.origin!r})"  # the rest may hold a secret

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def authority(self) -> str:
        """Host and port, as the Host header has them."""
        return _authority(self.scheme, self.host, self.port)

    def join(self, reference: str) -> Url:
        """Return where a reference of an answer leads; raise ValueError where it leads nowhere."""
        return Url.parse(urljoin(self.text, reference.strip()).partition("#")[0])

    def below(self, *names: str) -> Url:
        """Return an address below this one, with the same query."""
        path, mark, query = self.target.partition("?")
        return self._with_target("/".join((path.rstrip("/"), *names)) + mark + query)

    def asking(self, query: Mapping[str, str]) -> Url:
        """Return this address with more parameters."""
        if not query:
            return self
        mark = "&" if "?" in self.target else "?"
        return self._with_target(f"{self.target}{mark}{urlencode(query, quote_via=quote)}")

    def _with_target(self, target: str) -> Url:
        return Url(self.scheme, self.host, self.port, target, has_user=self.has_user)


def _host(name: str) -> str:
    if ":" in name:
        usable = _IPV6.fullmatch(name)
    else:
        name = name if name.isascii() else name.encode("idna").decode().lower()
        usable = _NAME.fullmatch(name)
    if usable is None:
        raise ValueError("the URL names no host")
    return name


def _authority(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _PORTS[scheme] else f"{shown}:{port}"


def _quoted(text: str, safe: str) -> str:
    """Quote what cannot be sent as it is; what is quoted already stays."""
    return quote(_STRAY_PERCENT.sub("%25", text), safe=safe)
