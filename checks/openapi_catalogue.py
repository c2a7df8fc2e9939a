"""What the routes of the catalogue of tools take and give."""

from __future__ import annotations

from typing import get_args

from bascule.model.effective_set import Effect
from bascule.model.person import PERSON_PATTERN
from bascule.wire.api.addresses import EFFECTIVE, TOOLS
from bascule.wire.api.catalogue import EffectiveQuestion, EffectiveSet, ToolAccess, ToolPage
from checks.openapi_routes import CURSOR, LIMIT, READ, SWITCH, TEXT, WRITE, Exchange

CATALOGUE = {
    ("GET", TOOLS): Exchange(
        answers={200: ToolPage},
        query={
            "server": TEXT,
            "q": {**TEXT, "maxLength": 200, "description": "in name, title or description"},
            "effect": {"enum": list(get_args(Effect))},
            "definitions": SWITCH,
            "limit": LIMIT,
            "cursor": CURSOR,
        },
    ),
    ("GET", f"{TOOLS}/{{server_id}}/{{tool}}/access"): Exchange(
        answers={200: ToolAccess},
        refusals=(*READ, "not_found"),
        query={"person": {**TEXT, "pattern": PERSON_PATTERN}, "limit": LIMIT, "cursor": CURSOR},
    ),
    ("POST", EFFECTIVE): Exchange(
        answers={200: EffectiveSet},
        refusals=(*WRITE, "invalid_record", "not_found"),
        body=EffectiveQuestion,
    ),
}
