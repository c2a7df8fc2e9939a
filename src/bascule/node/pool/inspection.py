"""A close look at one server, for doctors and trials."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.json import JsonObject
from bascule.node.ports import Listing
from bascule.wire.era import Era


class ServerInspection(Struct, frozen=True, kw_only=True):
    """What a server is and lists when it is looked at closely; names are its own words."""

    server_id: str
    era: Era
    protocol_version: str
    server_info: JsonObject
    connect_ms: float
    list_ms: float
    listing: Listing
