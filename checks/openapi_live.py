"""What the overview, the nodes and the live stream take and give."""

from __future__ import annotations

from bascule.wire.api.addresses import LIVE, NODE_REPORT, NODES, OVERVIEW
from bascule.wire.api.live import EVENTS
from bascule.wire.api.nodes import NewAssignment, NodeHeard, NodeWords
from bascule.wire.api.overview import NodeDetail, NodeList, Overview
from checks.openapi_routes import DOWN, READ, WRITE, Exchange, Schema, ref

_EVENT: Schema = {
    "anyOf": [ref(data) for data in EVENTS.values()],
    "description": "the data of the events " + ", ".join(EVENTS),
    "x-events": {name: ref(data) for name, data in EVENTS.items()},
}
LIVE_SHAPES = tuple(EVENTS.values())
LIVE_ROUTES = {
    ("GET", OVERVIEW): Exchange(answers={200: Overview}, refusals=(*READ, "store_unavailable")),
    ("GET", NODES): Exchange(answers={200: NodeList}),
    ("GET", f"{NODES}/{{name}}"): Exchange(
        answers={200: NodeDetail}, refusals=(*READ, "not_found")
    ),
    ("GET", f"{NODES}/{{name}}/assignment"): Exchange(answers={200: NodeDetail}),
    ("PUT", f"{NODES}/{{name}}/assignment"): Exchange(
        answers={200: NodeDetail},
        refusals=(*WRITE, "invalid_record", "wrong_state", *DOWN),
        body=NewAssignment,
    ),
    ("POST", NODE_REPORT): Exchange(
        answers={200: NodeHeard},
        refusals=(*WRITE, "invalid_record", "store_unavailable"),
        body=NodeWords,
    ),
    ("GET", LIVE): Exchange(answers={200: _EVENT}, media_type="text/event-stream"),
}
