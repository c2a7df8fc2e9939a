"""What a close look at one server shows.

Below: the listing and the era. Above: ``connection.py`` looks, the command line and the API show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bascule.node.ports import Listing
from bascule.wire.era import Era


class ServerInspection(Struct, frozen=True, kw_only=True):
    """What a server is and lists when it is looked at closely; names are its own words."""

    server_id: str
    era: Era
    protocol_version: str
    server_info: Mapping[str, Any]
    connect_ms: float
    list_ms: float
    listing: Listing
