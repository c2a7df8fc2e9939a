"""What every read of the registry takes: ``?at_least=REVISION``."""

from __future__ import annotations

from msgspec.structs import replace

from bascule.control.api.fresh import NAME
from bascule.wire.api.addresses import ADMIN, INTEGRATIONS, ME, PUBLIC
from checks.openapi_routes import REVISION, Exchange, Schema
from checks.openapi_writes import Exchanges

_AT_LEAST: Schema = {
    **REVISION,
    "description": "nothing older: a replica that is behind catches up, or answers 503",
}


def with_reads(known: Exchanges) -> Exchanges:
    """Return the table with what every read of the registry may ask for."""
    return {key: _fresh(one) if _is_read(*key) else one for key, one in known.items()}


def _is_read(method: str, path: str) -> bool:
    return method == "GET" and (
        path in (ME, INTEGRATIONS) or path.startswith((f"{PUBLIC}/", f"{ADMIN}/"))
    )


def _fresh(read: Exchange) -> Exchange:
    refusals = tuple(dict.fromkeys((*read.refusals, "store_unavailable")))
    return replace(read, refusals=refusals, query={**read.query, NAME: _AT_LEAST})
