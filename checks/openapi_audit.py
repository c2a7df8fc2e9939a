"""What the routes of the audit trail take and give."""

from __future__ import annotations

from bascule.audit.verification import Verification
from bascule.control.api.audit import CHOICES, FILTERS, LONGEST, TIME, TIMES
from bascule.wire.api.addresses import AUDIT
from bascule.wire.api.audit import (
    AuditEntry,
    AuditPage,
    CallLife,
    CheckpointMade,
    NewCheckpoint,
    VerifyProgress,
)
from checks.openapi_routes import LIMIT, NAME, READ, REVISION, TEXT, WRITE, Exchange, Schema, ref

_LOOKED_FOR: dict[str, Schema] = {
    name: {**TEXT, "pattern": TIME}
    if name in TIMES
    else {"enum": [*CHOICES[name]]}
    if name in CHOICES
    else {**NAME, "maxLength": LONGEST}
    for name in FILTERS
}
_BOOKMARK: Schema = {
    "type": "object",
    "description": "of the event bookmark: nothing that is watched for happened up to this row",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
    "additionalProperties": False,
}
_VERIFIED: Schema = {
    "anyOf": [ref(VerifyProgress), ref(Verification)],
    "description": "the data of the events progress and, at the end, result",
}
_LEDGER = (*READ, "store_unavailable")
_SIGN = (*WRITE, "store_unavailable")
AUDIT_ROUTES = {
    ("GET", AUDIT): Exchange(
        answers={200: AuditPage},
        refusals=_LEDGER,
        query={**_LOOKED_FOR, "before": REVISION, "limit": LIMIT},
    ),
    ("GET", f"{AUDIT}/{{request_id}}"): Exchange(
        answers={200: CallLife}, refusals=(*_LEDGER, "not_found")
    ),
    ("GET", f"{AUDIT}/watch"): Exchange(
        answers={200: {"anyOf": [ref(AuditEntry), _BOOKMARK]}},
        refusals=(*_LEDGER, "compacted"),
        query={**_LOOKED_FOR, "after": REVISION},
        headers={"Last-Event-ID": TEXT},
        media_type="text/event-stream",
    ),
    ("GET", f"{AUDIT}/export"): Exchange(
        answers={200: TEXT}, refusals=_LEDGER, query=_LOOKED_FOR, media_type="application/jsonl"
    ),
    ("POST", f"{AUDIT}/verify"): Exchange(
        answers={200: Verification}, refusals=_SIGN, also={"text/event-stream": _VERIFIED}
    ),
    ("POST", f"{AUDIT}/checkpoint"): Exchange(
        answers={200: CheckpointMade},
        refusals=(*_SIGN, "invalid_record"),
        body=NewCheckpoint,
    ),
}
