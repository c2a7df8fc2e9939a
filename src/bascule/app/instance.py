"""``GET /api/v1/instance``: the process proves that it holds the lock of its data directory.

A command asks this before it shows a token to an address that it found in a file. It needs none
itself, and tells nothing but the answer to the challenge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hmac import compare_digest
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from bascule.app.data_dir import OWNER_HEADER, owner_key, owner_proof, proof_of
from bascule.asgi.errors import Refused
from bascule.asgi.guard import OPEN, GuardedRoute, route
from bascule.asgi.json import json_response
from bascule.wire.api.addresses import INSTANCE
from bascule.wire.api.health import InstanceProof

_NONCE = re.compile(r"[0-9a-f]{64}")


def instance_routes(data: Path) -> list[GuardedRoute]:
    """Return the route of the process that serves a data directory."""
    key = owner_key(data)

    async def instance(request: Request) -> Response:
        """Prove that the process holds the lock of its data directory."""
        nonce = request.query_params.get("nonce", "")
        if not _NONCE.fullmatch(nonce):
            details = {"parameter": "nonce"}
            raise Refused("invalid_request", "nonce: must be 64 of 0-9 a-f", details=details)
        if key is None:
            raise Refused("not_found", "this process holds no lock")
        return json_response(InstanceProof(proof_of(key, nonce, _port(request))))

    return [route(INSTANCE, instance, ["GET"], permission=OPEN)]


def asked_by_owner(data: Path) -> Callable[[Request], bool]:
    """Return what says whether a request is of somebody who can read the data directory."""
    key = owner_key(data)

    def by_owner(request: Request) -> bool:
        shown = request.headers.get(OWNER_HEADER)
        if key is None or shown is None:
            return False
        return compare_digest(shown.encode(), owner_proof(key, _port(request)).encode())

    return by_owner


def _port(request: Request) -> int:
    """Return the port that the request really came to, whatever it says about it."""
    address: tuple[str, int | None] | None = request.scope.get("server")
    return (address and address[1]) or 0
