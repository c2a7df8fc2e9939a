"""The guard as plainly as it can be written: every check, in order, on every request.

The guard itself lets usual requests pass by lookups. Whatever it does must be what this decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from bascule.asgi.guard import BodyRule, GuardRules
from bascule.auth.identity import Permission
from bascule.auth.tokens import Tokens

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
BEARER = re.compile(r"bearer +([\x21-\x7e]+)", re.IGNORECASE)


@dataclass
class No(Exception):
    """A request that is refused."""

    status: int
    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    challenge: str | None = None


@dataclass(frozen=True)
class PlainGuard:
    """One route behind the guard."""

    tokens: Tokens
    rules: GuardRules
    verbs: tuple[str, ...]
    permission: Permission
    body: BodyRule
    origins: tuple[str, ...] = ()

    async def judge(self, scope: dict[str, Any]) -> No | None:
        """Return why a request is refused, or None."""
        headers = Headers(scope=scope)
        try:
            self._host(headers)
            self._site(headers, scope)
            role = await self._role(headers, scope["method"])
            if role is None:
                raise No(401, "unauthenticated", "a bearer token is needed", challenge="Bearer")
            self._body(headers)
        except No as refusal:
            return refusal
        return None

    def _host(self, headers: Headers) -> None:
        found = HOST.fullmatch((only(headers, "host") or "").lower())
        if found is None or found[1] not in self.rules.hosts:
            raise No(421, "host_refused", "this server does not answer to the name in Host")

    def _site(self, headers: Headers, scope: dict[str, Any]) -> None:
        origin = only(headers, "origin")
        if origin is not None:
            if origin in self.origins:
                return
            if not own_origin(origin, headers["host"]):
                raise No(403, "origin_refused", "requests from other origins are refused")
        if headers.get("sec-fetch-site", "none").lower() in {"same-origin", "none"}:
            return
        navigates = headers.get("sec-fetch-mode", "").lower() == "navigate"
        if scope["method"] not in {"GET", "HEAD"} or not navigates:
            raise No(403, "origin_refused", "requests from other sites are refused")

    async def _role(self, headers: Headers, method: str) -> str | None:
        credentials = only(headers, "authorization")
        principal = None
        if credentials is not None:
            found = BEARER.fullmatch(credentials)
            principal = await self.tokens.verify(found[1]) if found else None
            if principal is None:
                words = "the token is not valid, has expired or was revoked"
                raise No(401, "unauthenticated", words, challenge="Bearer")
        if method not in {*self.verbs, "HEAD"}:
            raise No(405, "method_not_allowed", f"use one of: {', '.join(sorted(self.verbs))}")
        if principal is not None and not principal.may(self.permission):
            details = {"permission": self.permission, "role": principal.role}
            words = f"role {principal.role!r} does not allow {self.permission}"
            raise No(403, "forbidden", words, details)
        return None if principal is None else principal.role

    def _body(self, headers: Headers) -> None:
        length = headers.get("content-length")
        if "transfer-encoding" not in headers and length in {None, "0"}:
            return
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in self.body.media_types:
            words = f"Content-Type must be {' or '.join(self.body.media_types)}"
            raise No(415, "unsupported_media_type", words)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise No(415, "unsupported_media_type", "a compressed body is not read")
        if length is not None and length.isdigit() and int(length) > self.body.max_bytes:
            most = self.body.max_bytes
            words = f"a body may have at most {most} bytes"
            raise No(413, "body_too_large", words, {"max_bytes": most})


def only(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise No(400, "invalid_request", f"more than one {name} header")
    return values[0] if values else None


def own_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()
