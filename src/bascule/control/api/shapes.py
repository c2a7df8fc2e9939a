"""How the registry's objects look outside: a record with what is known about it.

Literal values are masked unless whoever asks starts servers. Below: the service's objects. Above:
every endpoint that shows something; ``openapi.py`` describes these shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bascule.auth.identity import Principal
from bascule.control.api.tasks import both_forms
from bascule.control.registry.changes import Touched
from bascule.control.registry.extra_fields import shown_extra
from bascule.control.registry.history import RevisionDiff, TaskAccess
from bascule.control.registry.masks import masked
from bascule.control.registry.status import CombinedStatus
from bascule.control.registry.store import Change, Entry, Stored
from bascule.model.task import TaskRecord
from bascule.policy.explain import AccessDiff
from bascule.wire.defaults import with_defaults
from bascule.wire.merge_patch import merge_patch
from bascule.wire.records import encode

#: What is shown beside a record's own fields, and left aside when it comes back.
SHOWN_BESIDE = ("status", "revision", "updated_at", "owner")


def shown(
    stored: Stored,
    asking: Principal,
    status: CombinedStatus | None = None,
    *,
    defaults: bool = True,
) -> dict[str, Any]:
    """Return an object for somebody; ``status`` is for servers, where it is known.

    Fields that a record leaves at their defaults are shown too, unless nobody wants them.
    """
    secrets = asking.may("registry:read_secrets")
    plain = encode(stored.record) if secrets else masked(stored.kind, stored.record)
    if defaults:
        plain = with_defaults(plain, stored.record)
    if stored.extra:
        plain = merge_patch(plain, stored.extra if secrets else shown_extra(stored))
    if isinstance(stored.record, TaskRecord):
        plain = both_forms(plain, stored.record)
    if status is not None:
        plain["status"] = msgspec.to_builtins(status)
    beside = {"revision": stored.revision, "updated_at": moment(stored.updated_at)}
    return {**plain, **beside, "owner": stored.owner}


def own_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's fields without what was shown beside them."""
    return {name: value for name, value in data.items() if name not in SHOWN_BESIDE}


def moment(seconds: float) -> str | None:
    """Return a time as RFC 3339 in UTC; what never happened has none."""
    if not seconds:
        return None
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def change_shape(change: Change, touched: Touched) -> dict[str, Any]:
    """Return a change as history lists it: what it touched, and which fields it changed."""
    return {
        "revision": change.revision,
        "at": moment(change.at),
        "actor": change.actor,
        "note": change.note,
        "upserts": [_named(entry) for entry in change.entries if entry.stored is not None],
        "deletes": [_named(entry) for entry in change.entries if entry.stored is None],
        "created": [{"kind": kind, "id": key} for kind, key in touched.created],
        "fields": msgspec.to_builtins(touched.fields),
    }


def _named(entry: Entry) -> dict[str, str]:
    return {"kind": entry.kind, "id": entry.id}


def diff_shape(diff: RevisionDiff) -> dict[str, Any]:
    """Return what differs between two revisions: records, access, and a text for people."""
    return {
        "from": diff.old,
        "to": diff.new,
        "changes": msgspec.to_builtins(diff.records.changes),
        "fields": msgspec.to_builtins(diff.fields),
        "reconnect": list(diff.records.reconnect),
        "access": {
            "platform": _access(diff.platform),
            "tasks": [_task_access(task) for task in diff.tasks],
        },
        "text": str(diff),
    }


def _task_access(task: TaskAccess) -> dict[str, Any]:
    return {"task": task.task, "default": _access(task.default), "most": _access(task.most)}


def _access(diff: AccessDiff) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(diff)
    return plain
