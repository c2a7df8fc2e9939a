"""What the overview, the nodes and the live stream give."""

from __future__ import annotations

from bascule.wire.api.addresses import LIVE, NODES, OVERVIEW
from bascule.wire.api.live import EVENTS
from bascule.wire.api.overview import NodeList, Overview
from checks.openapi_routes import Exchange, Schema, ref

_EVENT: Schema = {
    "anyOf": [ref(data) for data in EVENTS.values()],
    "description": "the data of the events " + ", ".join(EVENTS),
    "x-events": {name: ref(data) for name, data in EVENTS.items()},
}
_READ = Exchange(answers={}).refusals
LIVE_SHAPES = tuple(EVENTS.values())
LIVE_ROUTES = {
    ("GET", OVERVIEW): Exchange(answers={200: Overview}, refusals=(*_READ, "store_unavailable")),
    ("GET", NODES): Exchange(answers={200: NodeList}, refusals=(*_READ, "store_unavailable")),
    ("GET", LIVE): Exchange(answers={200: _EVENT}, media_type="text/event-stream"),
}
