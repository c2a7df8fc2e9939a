"""Who is given a secret: a server or a backend as its record stands, which a digest fixes.

A secret is bound to a use. Whoever may edit a record, and no more, could otherwise have a secret
sent to another host or given to another program: what decides where it goes is in the digest, and
a record that changes there is not bound any more.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from msgspec import Struct, json

from bascule.model.backend import BackendRecord
from bascule.model.server import ServerRecord

UserKind = Literal["server", "backend"]
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#$]+(?=[/?#]|$)")


class SecretUse(Struct, frozen=True):
    """A server or a backend, and the digest of all that decides where a secret of it goes."""

    kind: UserKind
    id: str
    digest: str


def server_use(record: ServerRecord) -> SecretUse:
    """Return a server as the user of secrets.

    Transport, command, arguments (and the package's version with them), environment and folder;
    or host, header names, authentication and certificates.
    """
    http = record.http and (
        _origin(record.http.url),
        sorted(record.http.headers),
        record.http.auth,
        record.http.tls,
        record.http.insecure,
    )
    return SecretUse("server", record.server_id, _digest(record.transport, record.stdio, http))


def backend_use(record: BackendRecord) -> SecretUse:
    """Return a backend as the user of secrets."""
    parts = _origin(record.base_url), sorted(record.headers), record.insecure
    return SecretUse("backend", record.name, _digest(*parts))


def _origin(url: str) -> str:
    """Return scheme, host and port; all of a URL that a variable completes."""
    found = _ORIGIN.match(url)
    return found[0] if found else url


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.encode(parts, order="deterministic")).hexdigest()
