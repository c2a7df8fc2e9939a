"""A merge of some fields into a record: what is not named stays as it is.

JSON merge patch (RFC 7396): null takes a field away, an object is merged, everything else
replaces. The spellings that records accept are brought to the record's own form first, so that
``approval_policy = "always"`` or an ``mcp.*`` key of a config map drops nothing beside it.
"""

from __future__ import annotations

from bascule.errors import InvalidRecord, refuse_any
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.kinds import Kind
from bascule.wire.collector import Findings
from bascule.wire.merge_patch import merge_patch
from bascule.wire.task_config import PREFIX, task_policy_fields


def merged(kind: Kind, old: JsonObject, patch: JsonObject) -> dict[str, JsonValue]:
    """Return a record's plain values with a patch applied."""
    return merge_patch(old, normal_patch(kind, patch))


def normal_patch(kind: Kind, patch: JsonObject) -> JsonObject:
    """Return a patch in the record's own form."""
    if kind == "server" and isinstance(patch.get("approval_policy"), str):
        return {**patch, "approval_policy": {"default": patch["approval_policy"]}}
    if kind == "task" and is_object(config := patch.get("config")):
        return _normal_task(patch, config)
    return patch


def _normal_task(patch: JsonObject, config: JsonObject) -> JsonObject:
    """Move the ``mcp.*`` keys of a patch's config map into the typed object."""
    keys = {key: value for key, value in config.items() if str(key).startswith(PREFIX)}
    if not keys:
        return patch
    if "mcp" in patch:
        raise InvalidRecord(["config: has both mcp.* keys and an mcp object; keep one of them"])
    findings = Findings()
    fields = task_policy_fields({k: v for k, v in keys.items() if v is not None}, findings)
    refuse_any(findings.problems)
    removed = {key.removeprefix(PREFIX): None for key, value in keys.items() if value is None}
    rest = {key: value for key, value in config.items() if key not in keys}
    return {**patch, "mcp": {**fields, **removed}, "config": rest}
