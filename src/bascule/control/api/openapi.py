"""What the registry's routes take and give, for the description of the API.

The schemas of records come from the classes that the validator uses; everything else is the one
table here. Below: ``bascule.asgi.openapi``. Above: a composition root joins it to what its other
routes say; ``docs/openapi.json`` is the whole, committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from bascule.asgi.openapi import (
    NULLABLE,
    READ,
    REFS,
    TEXT,
    WRITE,
    Exchange,
    Schema,
    list_of,
    object_of,
    ref,
)
from bascule.control.api.history import RecordName, Rollback
from bascule.control.api.imports import MODES
from bascule.control.api.node_port import TestReport, ToolPreview
from bascule.control.api.query import MAX_PAGE
from bascule.control.api.records import Collection
from bascule.control.api.rest import ADMIN, COLLECTIONS, PLATFORM, PUBLIC, SERVERS
from bascule.control.api.tokens import TOKENS, NewToken, TokenShown
from bascule.control.registry.status import CombinedStatus
from bascule.model.kinds import CLASSES, KINDS
from bascule.model.snapshot import KindChange
from bascule.policy.explain import AccessDiff
from bascule.wire.api.snapshot import SnapshotBody

Pairs: TypeAlias = Iterator[tuple[tuple[str, str], Exchange]]

_TYPES = (
    *CLASSES.values(),
    CombinedStatus,
    TestReport,
    ToolPreview,
    Rollback,
    RecordName,
    KindChange,
    AccessDiff,
    NewToken,
    TokenShown,
    SnapshotBody,
)
REVISION: Schema = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
_CURSOR: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"}
_TAGS: Schema = {
    "type": "string",
    "description": "an ETag, several, or *",
    "pattern": r"""^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$""",
}
_SAVE = (*WRITE, "invalid_record", "owned_by_file", "pair_not_accepted", "store_unavailable")
_CONDITIONAL = (*_SAVE, "conflict", "not_found")
_PAST = (*READ, "compacted", "future_revision")


# --- what each route takes and gives


def exchanges() -> Pairs:
    """Yield what each route of the registry and of the tokens takes and gives."""
    yield from _reads(PUBLIC, SERVERS)
    yield ("GET", f"{PUBLIC}/snapshot"), _snapshot()
    yield ("GET", f"{PUBLIC}/watch"), _watch()
    for collection in COLLECTIONS:
        many = f"{ADMIN}/{collection.name}"
        yield from _reads(ADMIN, collection)
        yield ("POST", many), _create(collection)
        yield from _writes(f"{many}/{{id}}", collection)
        yield ("POST", f"{many}/{{id}}/accept"), _accept(collection)
    yield ("GET", f"{ADMIN}/platform"), _get(PLATFORM)
    yield from _writes(f"{ADMIN}/platform", PLATFORM)
    yield from _trials(f"{ADMIN}/servers/{{id}}")
    yield ("POST", f"{ADMIN}/import"), _import()
    yield ("POST", f"{ADMIN}/servers/import"), _import()
    yield ("GET", f"{ADMIN}/proposals"), _proposals()
    yield from _past()
    yield from _tokens()


def _reads(prefix: str, collection: Collection) -> Pairs:
    many = f"{prefix}/{collection.name}"
    shown = _shown(collection)
    listing = object_of(
        store_id=TEXT, revision=REVISION, next_cursor=NULLABLE, **{collection.name: list_of(shown)}
    )
    yield (
        ("GET", many),
        Exchange(
            answers={200: listing, 304: {}},
            query={"limit": _LIMIT, "cursor": _CURSOR, **_DEFAULTS},
            headers={"If-None-Match": _TAGS},
            tagged=True,
        ),
    )
    yield ("GET", f"{many}/{{id}}"), _get(collection)


def _get(collection: Collection) -> Exchange:
    return Exchange(
        answers={200: _shown(collection), 304: {}},
        refusals=(*READ, "not_found"),
        query=_DEFAULTS,
        headers={"If-None-Match": _TAGS},
        tagged=True,
    )


def _create(collection: Collection) -> Exchange:
    return Exchange(
        answers={201: _written(collection)},
        refusals=(*_SAVE, "already_exists"),
        body=_record(collection),
        query={**_STRICT, **_DEFAULTS},
        tagged=True,
    )


def _writes(path: str, collection: Collection) -> Pairs:
    written = _written(collection)
    when = {"If-Match": _TAGS, "If-None-Match": _TAGS}
    merge = {"type": "object", "description": "a JSON merge patch (RFC 7396) of the record"}
    put = Exchange(
        answers={200: written, 201: written},
        refusals=_CONDITIONAL,
        body=_record(collection),
        query={**_STRICT, **_DEFAULTS},
        headers=when,
        tagged=True,
    )
    yield ("PUT", path), put
    yield ("PATCH", path), msgspec.structs.replace(put, answers={200: written}, body=merge)
    deleted = object_of(revision=REVISION, deleted=TEXT)
    yield (
        ("DELETE", path),
        Exchange(answers={200: deleted}, refusals=_CONDITIONAL, headers=when),
    )
    yield (
        ("POST", f"{path}/adopt"),
        Exchange(
            answers={200: written},
            refusals=(*_CONDITIONAL, "wrong_state"),
            query=_DEFAULTS,
            tagged=True,
        ),
    )


def _accept(collection: Collection) -> Exchange:
    written = _written(collection)
    return Exchange(
        answers={200: written, 201: written},
        refusals=_CONDITIONAL,
        query={"proposal": TEXT, **_DEFAULTS},
        tagged=True,
    )


def _proposals() -> Exchange:
    proposal = object_of(
        kind={"enum": list(KINDS)},
        id=TEXT,
        proposal=TEXT,
        actor=TEXT,
        at=NULLABLE,
        base=REVISION,
        pairs=list_of(object_of(reference=TEXT, target=TEXT)),
        record={"type": "object"},
    )
    return Exchange(
        answers={200: object_of(proposals=list_of(proposal))}, refusals=(*READ, "store_unavailable")
    )


def _trials(path: str) -> Pairs:
    refusals = (*READ, "not_found", "no_node")
    tools = object_of(server_id=TEXT, tools=list_of(ref(ToolPreview)))
    yield ("POST", f"{path}/test"), Exchange(answers={200: ref(TestReport)}, refusals=refusals)
    unreachable = (*refusals, "mcp_unavailable", "mcp_timeout", "mcp_tool_error")
    yield ("GET", f"{path}/tools"), Exchange(answers={200: tools}, refusals=unreachable)


def _snapshot() -> Exchange:
    when = {"If-None-Match": _TAGS}
    return Exchange(answers={200: ref(SnapshotBody), 304: {}}, headers=when, tagged=True)


def _watch() -> Exchange:
    item = {"anyOf": [TEXT, {"type": "object"}]}
    event = object_of(
        revision=REVISION,
        kind={"enum": [*KINDS, "bookmark"]},
        upserts=list_of(item),
        deletes=list_of(TEXT),
    )
    return Exchange(
        answers={200: event},
        refusals=(*_PAST, "store_changed"),
        query={
            "since": REVISION,
            "kind": {"type": "string", "description": f"some of {', '.join(KINDS)}, by commas"},
            "include": {"enum": ["ids", "objects"]},
            "store_id": TEXT,
        },
        headers={"Last-Event-ID": TEXT},
        media_type="text/event-stream",
    )


def _import() -> Exchange:
    records = list_of({"type": "object"})
    answer = object_of(
        mode={"enum": list(MODES)},
        revision=REVISION,
        diff=_DIFF,
        warnings=list_of(TEXT),
    )
    return Exchange(
        answers={200: answer},
        refusals=_CONDITIONAL,
        body={"anyOf": [records, {"type": "object"}]},
        query={"mode": {"enum": list(MODES)}, "whole": {"type": "boolean"}, **_STRICT},
    )


def _past() -> Pairs:
    change = object_of(
        revision=REVISION,
        at=NULLABLE,
        actor=TEXT,
        note=TEXT,
        upserts=list_of(ref(RecordName)),
        deletes=list_of(ref(RecordName)),
        created=list_of(ref(RecordName)),
        fields=_FIELDS,
    )
    page = object_of(
        store_id=TEXT,
        revision=REVISION,
        floor=REVISION,
        changes=list_of(change),
        next_before={"type": ["integer", "null"]},
    )
    back = object_of(revision=REVISION, diff=_DIFF)
    yield (
        ("GET", f"{ADMIN}/history"),
        Exchange(answers={200: page}, query={"limit": _LIMIT, "before": REVISION}),
    )
    yield (
        ("GET", f"{ADMIN}/diff"),
        Exchange(
            answers={200: _DIFF},
            refusals=_PAST,
            query={"from": REVISION, "to": REVISION, "environment": TEXT},
            needed=("from",),
        ),
    )
    yield (
        ("POST", f"{ADMIN}/rollback"),
        Exchange(
            answers={200: back},
            refusals=(*_SAVE, "compacted", "future_revision", "not_found"),
            body=ref(Rollback),
        ),
    )


def _tokens() -> Pairs:
    made = {"allOf": [ref(TokenShown), object_of(token=TEXT, warnings=list_of(TEXT))]}
    listing = object_of(tokens=list_of(ref(TokenShown)))
    yield ("GET", TOKENS), Exchange(answers={200: listing}, refusals=(*READ, "store_unavailable"))
    yield (
        ("POST", TOKENS),
        Exchange(
            answers={201: made},
            refusals=(*WRITE, "invalid_record", "store_unavailable"),
            body=ref(NewToken),
        ),
    )
    yield (
        ("DELETE", f"{TOKENS}/{{id}}"),
        Exchange(
            answers={200: object_of(deleted=TEXT)},
            refusals=(*WRITE, "not_found", "store_unavailable"),
        ),
    )


# --- schemas


def _record(collection: Collection) -> Schema:
    return ref(CLASSES[collection.kind])


def _shown(collection: Collection) -> Schema:
    return ref(f"{collection.kind.title()}Shown")


def _written(collection: Collection) -> Schema:
    return ref(f"{collection.kind.title()}Written")


def _shapes(collection: Collection) -> Iterator[tuple[str, Schema]]:
    """Yield a record with what is shown beside its fields, and the answer to a write of it."""
    name = collection.kind.title()
    beside: dict[str, Schema] = {"revision": REVISION, "updated_at": NULLABLE, "owner": NULLABLE}
    if collection.kind == "server":
        beside["status"] = ref(CombinedStatus)
    yield f"{name}Shown", {"allOf": [_record(collection), object_of(**beside)]}
    shown = {collection.kind: _shown(collection)}
    yield (
        f"{name}Written",
        object_of(revision=REVISION, changed={"type": "boolean"}, warnings=list_of(TEXT), **shown),
    )


_STRICT: Mapping[str, Schema] = {"strict": {"type": "boolean"}}
_DEFAULTS: Mapping[str, Schema] = {
    "defaults": {"type": "boolean", "description": "false: without the fields left at defaults"}
}
_TASK_ACCESS = object_of(task=TEXT, default=ref(AccessDiff), most=ref(AccessDiff))
_DIFF: Schema = ref("Diff")
_FIELDS = list_of(object_of(kind=TEXT, id=TEXT, field=TEXT, old={}, new={}))


def _diff() -> Schema:
    return object_of(
        **{"from": REVISION, "to": REVISION},
        changes=list_of(ref(KindChange)),
        fields=_FIELDS,
        reconnect=list_of(TEXT),
        access=object_of(platform=ref(AccessDiff), tasks=list_of(_TASK_ACCESS)),
        text=TEXT,
    )


def schemas() -> dict[str, Any]:
    """Return the schemas that the exchanges refer to."""
    _, found = msgspec.json.schema_components(_TYPES, ref_template=REFS + "{name}")
    shapes = [shape for one in (*COLLECTIONS, PLATFORM) for shape in _shapes(one)]
    return {**found, **dict(shapes), "Diff": _diff()}
