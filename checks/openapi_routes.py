"""What each route of ``bascule up`` takes and gives: a new route gets its entry here.

A body is a struct of ``bascule.wire.api``, or a schema where the values are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from bascule.control.api.approvals import FILTERS as APPROVAL_FILTERS
from bascule.control.api.audit import LONGEST
from bascule.control.api.query import MAX_PAGE
from bascule.model.approval import STATES
from bascule.model.call import Progress
from bascule.model.code import ErrorCode
from bascule.model.explanation import Explanation
from bascule.model.kinds import CLASSES, COLLECTIONS, KINDS, Kind
from bascule.model.person import PERSON_PATTERN
from bascule.wire.api.addresses import (
    ADMIN,
    APPROVALS,
    DOCS,
    IDENTITY,
    INSTANCE,
    INTEGRATIONS,
    ME,
    OPENAPI,
    PUBLIC,
    RESCAN,
    SECRETS,
    SNAPSHOT,
    TOKENS,
    WATCH,
)
from bascule.wire.api.approvals import (
    ApprovalPage,
    ApprovalQuestion,
    ApprovalShown,
    NewDecision,
)
from bascule.wire.api.health import Health, InstanceProof, Ready
from bascule.wire.api.history import (
    Announced,
    Announcement,
    HistoryPage,
    RevisionDiff,
    Rollback,
    RolledBack,
)
from bascule.wire.api.imports import Imported, ImportMode, ImportText, Rescanned
from bascule.wire.api.me import Integrations, Me
from bascule.wire.api.proposals import ProposalList
from bascule.wire.api.records import LISTS, WRITTEN, RecordRemoved
from bascule.wire.api.secrets import NewSecret, SecretList, SecretRemoved, SecretShown, SecretUser
from bascule.wire.api.snapshot import SnapshotBody
from bascule.wire.api.tokens import Identity, NewToken, TokenEnded, TokenList, TokenMade
from bascule.wire.api.tools import (
    MAX_WAIT_MS,
    AskedBody,
    CallBody,
    OutcomeBody,
    OutputBody,
    OwnCallBody,
    OwnCallNoted,
    SessionBody,
    ToolsBody,
    WaitingBody,
)
from bascule.wire.api.trials import ToolPreviews, Trial
from bascule.wire.api.watch import WatchEvent
from bascule.wire.faults import face
from bascule.wire.narrowing import FLAGS, NUMBERS, USER
from bascule.wire.narrowing import LISTS as LINES

Schema: TypeAlias = dict[str, Any]
#: A struct, one of several, a schema, or no body at all.
Body: TypeAlias = type[Any] | tuple[type[Any], ...] | Schema | None
Pairs: TypeAlias = Iterator[tuple[tuple[str, str], "Exchange"]]

REFS = "#/components/schemas/"
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
SWITCH: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
_PLACE: Schema = {"type": "integer", "minimum": 0, "maximum": 10**12 - 1}
REVISION: Schema = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
CURSOR: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:@-]{1,128}$"}
_TAGS: Schema = {
    "type": "string",
    "description": "an ETag, several, or *",
    "pattern": r"""^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$""",
}
_MERGE: Schema = {"type": "object", "description": "a JSON merge patch (RFC 7396) of the record"}
_STRICT = {"strict": SWITCH}
_DEFAULTS = {
    "defaults": {"type": "boolean", "description": "false: without the fields left at defaults"}
}
_UNLESS = {"If-None-Match": _TAGS}
_WHEN = {"If-Match": _TAGS, "If-None-Match": _TAGS}
#: What narrows a session, and for whom it is, on every route of the tools API.
NARROWING: dict[str, Schema] = {
    USER: {**TEXT, "pattern": PERSON_PATTERN, "description": "for tokens that act for users"},
    **{name: {"type": "boolean"} for name in FLAGS},
    **{name: {**TEXT, "pattern": "^[1-9][0-9]{0,7}$"} for name in NUMBERS},
    **{name: {**TEXT, "pattern": "^([^%]|%[0-9A-Fa-f]{2})*$"} for name in LINES},
}

#: What any request may be refused for, with and without a token, and with a body.
ANYBODY = ("invalid_request", "unauthenticated", "origin_refused", "host_refused")
READ = (*ANYBODY, "forbidden", "person_refused")
BODY = ("invalid_json", "body_too_large", "unsupported_media_type", "request_timeout")
WRITE = (*READ, *BODY, "confirmation_required")
#: Why a write may have to wait: for the store, or for the ledger that it is noted in first.
DOWN = ("store_unavailable", "mcp_unavailable")
_SAVE = (*WRITE, "invalid_record", "owned_by_file", "pair_not_accepted", *DOWN)
_CONDITIONAL = (*_SAVE, "conflict", "not_found")
_PAST = (*READ, "compacted", "future_revision")
_TRIED = (*READ, "not_found", "no_node", "store_unavailable")
USED = (*READ, "session_refused", "mcp_budget_exceeded")


class Exchange(Struct, frozen=True, kw_only=True):
    """What one route takes and gives: ``answers`` by status, ``refusals`` by code.

    ``fallible`` are the statuses at which the answer itself comes, as an outcome that is not a
    success, and ``also`` what comes in other media types. A body that is ``optional`` may be left
    out.
    """

    answers: Mapping[int, Body]
    refusals: tuple[str, ...] = READ
    body: Body = None
    optional: bool = False
    query: Mapping[str, Schema] = {}
    headers: Mapping[str, Schema] = {}
    needed: tuple[str, ...] = ()
    media_type: str = "application/json"
    tagged: bool = False
    fallible: tuple[int, ...] = ()
    also: Mapping[str, Body] = {}


def structs_of(body: Body) -> tuple[type[Any], ...]:
    """Return the structs that a body may be."""
    if isinstance(body, tuple):
        return body
    return (body,) if isinstance(body, type) else ()


def ref(body: Body) -> Schema:
    """Return the schema of a body: a reference to a struct's."""
    if body is None or isinstance(body, dict):
        return body or {}
    if isinstance(body, tuple):
        return {"anyOf": [ref(one) for one in body]}
    return {"$ref": REFS + body.__name__}


def shown(kind: Kind) -> Schema:
    """Return a reference to a record with what is shown beside its fields."""
    return {"$ref": f"{REFS}{kind.title()}Shown"}


def exchanges() -> Pairs:
    """Yield what each route takes and gives, by method and path."""
    yield from _reads(f"{PUBLIC}/servers", "server")
    yield ("GET", SNAPSHOT), _WHOLE
    yield ("GET", WATCH), _WATCHED
    for kind in KINDS:
        yield from _records(f"{ADMIN}/{COLLECTIONS[kind]}", kind)
    for table in (_REGISTRY, _TOKENS, _SECRETS, _APPROVALS, _TOOLS, _PROCESS):
        yield from table.items()


# --- records


def _records(many: str, kind: Kind) -> Pairs:
    if kind == "platform":
        yield ("GET", many), _one(kind)
        yield from _writes(many, kind)
        return
    created = Exchange(
        answers={201: WRITTEN[kind]},
        refusals=(*_SAVE, "already_exists"),
        body=CLASSES[kind],
        query={**_STRICT, **_DEFAULTS},
        tagged=True,
    )
    accepted = Exchange(
        answers={200: WRITTEN[kind], 201: WRITTEN[kind]},
        refusals=_CONDITIONAL,
        query={"proposal": TEXT, **_DEFAULTS},
        tagged=True,
    )
    yield from _reads(many, kind)
    yield ("POST", many), created
    yield from _writes(f"{many}/{{id}}", kind)
    yield ("POST", f"{many}/{{id}}/accept"), accepted


def _reads(many: str, kind: Kind) -> Pairs:
    one = _one(kind)
    page = {"limit": LIMIT, "cursor": CURSOR, **_DEFAULTS}
    listed = replace(one, answers={200: LISTS[kind], 304: None}, refusals=READ, query=page, also={})
    yield ("GET", many), listed
    yield ("GET", f"{many}/{{id}}"), one


def _one(kind: Kind) -> Exchange:
    return Exchange(
        answers={200: shown(kind), 304: None},
        refusals=(*READ, "not_found"),
        query=_DEFAULTS,
        headers=_UNLESS,
        tagged=True,
        also={"application/toml": TEXT},
    )


def _writes(path: str, kind: Kind) -> Pairs:
    written = WRITTEN[kind]
    put = Exchange(
        answers={200: written, 201: written},
        refusals=_CONDITIONAL,
        body=CLASSES[kind],
        query={**_STRICT, **_DEFAULTS},
        headers=_WHEN,
        tagged=True,
    )
    yield ("PUT", path), put
    yield ("PATCH", path), replace(put, answers={200: written}, body=_MERGE)
    removed = Exchange(answers={200: RecordRemoved}, refusals=_CONDITIONAL, headers=_WHEN)
    yield ("DELETE", path), removed
    adopted = Exchange(
        answers={200: written},
        refusals=(*_CONDITIONAL, "wrong_state"),
        query=_DEFAULTS,
        tagged=True,
    )
    yield ("POST", f"{path}/adopt"), adopted


_WHOLE = Exchange(answers={200: SnapshotBody, 304: None}, headers=_UNLESS, tagged=True)
_WATCHED = Exchange(
    answers={200: WatchEvent},
    refusals=(*_PAST, "store_changed"),
    query={
        "since": REVISION,
        "kind": {"type": "string", "description": f"some of {', '.join(KINDS)}, by commas"},
        "include_objects": SWITCH,
        "include": {"enum": ["ids", "objects"], "deprecated": True},
        "store_id": TEXT,
        "mark": TEXT,
    },
    headers={"Last-Event-ID": TEXT},
    media_type="text/event-stream",
)

# --- the rest of the registry

_IMPORTED = Exchange(
    answers={200: Imported},
    refusals=_CONDITIONAL,
    body={"anyOf": [ref(ImportText), {"type": "array", "items": OBJECT}, OBJECT]},
    query={"mode": {"enum": list(get_args(ImportMode))}, "whole": SWITCH, **_STRICT},
)
_Table: TypeAlias = Mapping[tuple[str, str], Exchange]
_REGISTRY: _Table = {
    ("POST", f"{ADMIN}/servers/{{id}}/test"): Exchange(answers={200: Trial}, refusals=_TRIED),
    ("GET", f"{ADMIN}/servers/{{id}}/tools"): Exchange(
        answers={200: ToolPreviews},
        refusals=(*_TRIED, "mcp_unavailable", "mcp_timeout", "mcp_tool_error"),
    ),
    ("POST", f"{ADMIN}/import"): _IMPORTED,
    ("POST", f"{ADMIN}/servers/import"): _IMPORTED,
    ("GET", f"{ADMIN}/proposals"): Exchange(
        answers={200: ProposalList}, refusals=(*READ, "store_unavailable")
    ),
    ("GET", f"{ADMIN}/history"): Exchange(
        answers={200: HistoryPage},
        query={"limit": LIMIT, "before": REVISION, "kind": {"enum": [*KINDS]}, "id": TEXT},
    ),
    ("GET", f"{ADMIN}/diff"): Exchange(
        answers={200: RevisionDiff},
        refusals=_PAST,
        query={"from": REVISION, "to": REVISION, "environment": TEXT},
        needed=("from",),
    ),
    ("POST", f"{ADMIN}/rollback"): Exchange(
        answers={200: RolledBack},
        refusals=(*_SAVE, "compacted", "future_revision", "not_found"),
        body=Rollback,
    ),
    ("POST", f"{ADMIN}/announce"): Exchange(
        answers={200: Announced}, refusals=(*WRITE, "invalid_record", *DOWN), body=Announcement
    ),
    ("POST", RESCAN): Exchange(
        answers={200: Rescanned},
        refusals=(*WRITE, "invalid_record", *DOWN),
        query={"dry_run": SWITCH},
    ),
}
_TOKENS: _Table = {
    ("GET", TOKENS): Exchange(answers={200: TokenList}, refusals=(*READ, "store_unavailable")),
    ("POST", TOKENS): Exchange(
        answers={201: TokenMade},
        refusals=(*WRITE, "invalid_record", *DOWN),
        body=NewToken,
    ),
    ("DELETE", f"{TOKENS}/{{id}}"): Exchange(
        answers={200: TokenEnded}, refusals=(*WRITE, "not_found", *DOWN)
    ),
    ("GET", IDENTITY): Exchange(answers={200: Identity}),
    ("GET", ME): Exchange(answers={200: Me}),
    ("GET", INTEGRATIONS): Exchange(answers={200: Integrations}),
    ("PATCH", ME): Exchange(answers={200: Me}, refusals=_CONDITIONAL, body=_MERGE),
}

# --- secrets

_KEPT = Exchange(
    answers={200: SecretShown},
    refusals=(*WRITE, "invalid_record", "not_found", "store_unavailable", "mcp_unavailable"),
    body=SecretUser,
)
_SECRETS: _Table = {
    ("GET", SECRETS): Exchange(answers={200: SecretList}, refusals=(*READ, "store_unavailable")),
    ("PUT", f"{SECRETS}/{{name}}"): replace(
        _KEPT,
        answers={200: SecretShown, 201: SecretShown},
        refusals=(*WRITE, "invalid_record", "store_unavailable", "mcp_unavailable"),
        body=NewSecret,
    ),
    ("DELETE", f"{SECRETS}/{{name}}"): replace(_KEPT, answers={200: SecretRemoved}, body=None),
    ("POST", f"{SECRETS}/{{name}}/bind"): _KEPT,
    ("POST", f"{SECRETS}/{{name}}/unbind"): _KEPT,
}

# --- approvals

_ONE_STATE = f"({'|'.join(STATES)})"
_ASKED: dict[str, Schema] = {name: {**NAME, "maxLength": LONGEST} for name in APPROVAL_FILTERS}
_APPROVALS: _Table = {
    ("GET", APPROVALS): Exchange(
        answers={200: ApprovalPage},
        refusals=(*READ, "store_unavailable"),
        query={
            "state": {
                "type": "string",
                "description": f"some of {', '.join(STATES)}, by commas; may be repeated",
                "pattern": f"^{_ONE_STATE}(,{_ONE_STATE})*$",
            },
            **_ASKED,
            "limit": LIMIT,
            "cursor": {
                "type": "string",
                "pattern": r"^[0-9]{1,12}\.[0-9]{1,17}:apr-[0-9a-f]{24}$",
            },
        },
    ),
    ("GET", f"{APPROVALS}/watch"): Exchange(
        answers={200: ApprovalShown},
        refusals=(*READ, "store_unavailable"),
        query=_ASKED,
        media_type="text/event-stream",
    ),
    ("GET", f"{APPROVALS}/{{id}}"): Exchange(
        answers={200: ApprovalQuestion},
        refusals=(*READ, "not_found", *DOWN),
        query={"wait_ms": {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS}},
    ),
    ("POST", f"{APPROVALS}/{{id}}/decision"): Exchange(
        answers={200: ApprovalShown},
        refusals=(
            *(*WRITE, "invalid_record", "not_found", *DOWN),
            *("own_call", "changed", "not_shown_whole", "wrong_state"),
        ),
        body=NewDecision,
    ),
}

# --- tools

_FAILED = sorted({face(code).http for code in get_args(ErrorCode)} - {200})
_TOLD: Schema = {
    "anyOf": [ref(WaitingBody), ref(Progress), ref(OutcomeBody)],
    "description": "the data of the events approval, progress and, at the end, outcome",
}
_TOOLS: _Table = {
    ("GET", "/api/v1/tools"): Exchange(
        answers={200: ToolsBody},
        refusals=USED,
        query={"explain": SWITCH, "definitions": SWITCH},
        headers=NARROWING,
    ),
    ("GET", "/api/v1/tools/session"): Exchange(
        answers={200: SessionBody}, refusals=USED, headers=NARROWING
    ),
    ("POST", "/api/v1/tools/call"): Exchange(
        answers={200: OutcomeBody},
        refusals=(*WRITE, *USED, "invalid_record"),
        body=CallBody,
        headers=NARROWING,
        fallible=(*_FAILED, 404),  # an approval that is not the caller's
        also={"text/event-stream": _TOLD},
    ),
    ("POST", "/api/v1/tools/own"): Exchange(
        answers={200: OwnCallNoted},
        refusals=(*WRITE, *USED, "invalid_record"),
        body=OwnCallBody,
        headers=NARROWING,
    ),
    ("GET", "/api/v1/tools/explain"): Exchange(
        answers={200: Explanation},
        refusals=USED,
        query={"name": NAME},
        needed=("name",),
        headers=NARROWING,
    ),
    ("GET", "/api/v1/tools/output"): Exchange(
        answers={200: OutputBody},
        refusals=(*USED, "not_found"),
        query={"handle": NAME, "start": _PLACE, "end": _PLACE},
        needed=("handle",),
        headers=NARROWING,
    ),
    ("GET", "/api/v1/approvals/{id}"): Exchange(
        answers={200: AskedBody},
        refusals=(*READ, "not_found"),
        query={"wait_ms": {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS}},
    ),
}

# --- the process itself

_PROCESS: _Table = {
    ("GET", INSTANCE): Exchange(
        answers={200: InstanceProof},
        refusals=(*ANYBODY, "not_found"),
        query={"nonce": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
        needed=("nonce",),
    ),
    ("GET", "/healthz"): Exchange(answers={200: Health}, refusals=ANYBODY),
    ("GET", "/readyz"): Exchange(answers={200: Ready}, refusals=(*ANYBODY, "store_unavailable")),
    ("GET", "/metrics"): Exchange(answers={200: TEXT}, media_type="text/plain"),
    ("GET", OPENAPI): Exchange(answers={200: OBJECT}, refusals=ANYBODY),
    ("GET", DOCS): Exchange(answers={200: TEXT}, refusals=ANYBODY, media_type="text/html"),
}
