"""A task in both of its forms: the typed ``mcp`` object, and the seeds' map of JSON-in-strings.

A task is shown with both, so whoever edits one of them sends back two that differ. The one that
was edited counts.
"""

from __future__ import annotations

from bascule.control.registry.extra_fields import texts_of, without_kept
from bascule.control.registry.store import Stored
from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, is_object
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.wire.merge_patch import merge_patch
from bascule.wire.records import decode
from bascule.wire.task_config import PREFIX, parse_task_config, task_config


def both_forms(plain: JsonObject, record: TaskRecord) -> JsonObject:
    """Return a task's plain values with its policy as an object and in the config map."""
    config = plain.get("config")
    flat = {**(config if is_object(config) else {}), **task_config(record.mcp)}
    return {**plain, "mcp": plain.get("mcp", {}), "config": flat}


def one_form_of(data: JsonObject, stored: Stored | None) -> JsonObject:
    """Return a task that may have both forms with the one that counts, in view of what is kept."""
    record = None if stored is None else stored.record
    rest, kept = without_kept(data, stored)
    return merge_patch(_one_form(rest, record if isinstance(record, TaskRecord) else None), kept)


def _one_form(data: JsonObject, old: TaskRecord | None) -> JsonObject:
    config, typed = data.get("config"), data.get("mcp")
    if not (is_object(config) and is_object(typed)):
        return data
    keys = {key: value for key, value in config.items() if str(key).startswith(PREFIX)}
    if not keys:
        return data
    familiar = texts_of(old)
    flat, _ = parse_task_config(keys, familiar=familiar)
    if _typed_counts(flat, _policy(typed, familiar), old):
        return {**data, "config": {k: v for k, v in config.items() if k not in keys}}
    return {name: value for name, value in data.items() if name != "mcp"}


def _typed_counts(flat: TaskPolicy, typed: TaskPolicy, old: TaskRecord | None) -> bool:
    stored = None if old is None else old.mcp
    if flat in (typed, stored):
        return True
    if typed == stored:
        return False
    raise InvalidRecord(["mcp: differs from the mcp.* keys of config; change one of them"])


def _policy(typed: JsonObject, familiar: frozenset[str]) -> TaskPolicy:
    record, _ = decode(TaskRecord, {"task_id": "x", "mcp": typed}, familiar=familiar)
    return record.mcp
