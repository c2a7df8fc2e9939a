"""The seeds' string maps: task and session parameters as ``mcp.*`` keys.

A value is what JSON gives (a list, true) or the same as a JSON string; lists may also be
comma-separated text. Each mistake is reported under its own key (``mcp.tool_allowlist``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.session import SessionRequest
from bascule.model.task import TaskPolicy
from bascule.wire.collector import Findings, collect, unknown_field
from bascule.wire.record_rules import check_selection
from bascule.wire.strict_json import StrictJsonError, loads

CONFIG = "config"
OBJECT = "mcp"
PREFIX = f"{OBJECT}."
HOST_ONLY_PREFIX = "mcp.task_"

Policy = TypeVar("Policy", TaskPolicy, SessionRequest)

_TRUE = frozenset({"true", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "0", "no", "n", "off"})


def means_mcp(key: str) -> bool:
    """Say whether a key is one of ours to a reader: in other letters, with spaces, look-alikes."""
    if not key.isascii():  # ASCII is its own normal form, and has nothing that is not shown
        normal = unicodedata.normalize("NFKC", key)
        key = "".join(c for c in normal if unicodedata.category(c) != "Cf")
    word = key.strip().lower()
    return word == OBJECT or word.startswith(PREFIX)


def task_policy_fields(config: JsonObject, findings: Findings) -> dict[str, JsonValue]:
    """Return the fields of the ``mcp`` object that a config map's ``mcp.*`` keys give."""
    return _fields(TaskPolicy, config, findings)


def parse_task_config(
    config: Mapping[str, Any], *, strict: bool = False, familiar: frozenset[str] = frozenset()
) -> tuple[TaskPolicy, tuple[str, ...]]:
    """Read a task's config map; return the policy and the warnings."""
    findings = Findings(strict=strict, familiar=familiar)
    fields = task_policy_fields(config, findings)
    return _finished(TaskPolicy, fields, findings)


def parse_session_params(
    params: Mapping[str, Any], *, strict: bool = False
) -> tuple[SessionRequest, tuple[str, ...]]:
    """Read a session's parameters; the host's own ``mcp.task_*`` keys are refused."""
    findings = Findings(strict=strict)
    for key in params:
        if str(key).startswith(HOST_ONLY_PREFIX):
            findings.problem(key, "is set by the host and cannot be given by a session")
    own = {k: value for k, value in params.items() if not str(k).startswith(HOST_ONLY_PREFIX)}
    return _finished(SessionRequest, _fields(SessionRequest, own, findings), findings)


def session_fields(params: JsonObject, findings: Findings) -> dict[str, JsonValue]:
    """Return the fields of a session's request that ``mcp.*`` keys give."""
    return _fields(SessionRequest, params, findings)


def task_config(policy: TaskPolicy) -> dict[str, str]:
    """Return a policy as the map of JSON-in-strings."""
    plain: dict[str, JsonValue] = msgspec.to_builtins(policy)
    plain["enabled"] = policy.enabled
    return {PREFIX + key: msgspec.json.encode(value).decode() for key, value in plain.items()}


def _fields(cls: type[object], config: JsonObject, findings: Findings) -> dict[str, JsonValue]:
    types = {field.encode_name: field.type for field in _struct_fields(cls)}
    fields: dict[str, JsonValue] = {}
    for key, value in config.items():
        if not isinstance(key, str) or not means_mcp(key):  # pyright: ignore[reportUnnecessaryIsInstance]
            continue
        stored = f"{CONFIG}.{key}" in findings.familiar and not key.startswith(PREFIX)
        if key == OBJECT:
            findings.refuse(key, "write keys such as 'mcp.enabled' here", tolerated=stored)
            continue
        name = key.removeprefix(PREFIX)
        if name not in types:
            near = unknown_field(key.strip().lower(), [PREFIX + known for known in types])
            findings.refuse(key, near, tolerated=stored)
            continue
        before = len(findings.problems)
        plain = _unwrapped(types[name], value, key, findings)
        if len(findings.problems) == before:
            plain = collect(types[name], plain, key, findings)
        if len(findings.problems) == before:
            fields[name] = plain
    return fields


def _struct_fields(cls: type[object]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(cls)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _unwrapped(kind: inspect.Type, value: JsonValue, key: str, findings: Findings) -> JsonValue:
    """Undo the string form of a value, as its type asks."""
    if not isinstance(value, str):
        return value
    members = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if any(isinstance(member, inspect.BoolType) for member in members):
        return _boolean(value)
    if any(isinstance(member, inspect.IntType) for member in members):
        return _number(value)
    if any(isinstance(member, inspect.VarTupleType) for member in members):
        return _list(value, key, findings)
    if any(isinstance(member, inspect.StructType) for member in members):
        return _json(value, key, findings)
    return _quoted(value)


def _boolean(text: str) -> JsonValue:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else text


def _number(text: str) -> JsonValue:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else text


def _list(text: str, key: str, findings: Findings) -> JsonValue:
    if text.lstrip()[:1] in ("[", "{", '"'):
        return _json(text, key, findings)
    return [item.strip() for item in text.split(",") if item.strip()]


def _json(text: str, key: str, findings: Findings) -> JsonValue:
    try:
        return loads(text.encode())
    except StrictJsonError as error:
        findings.problem(key, f"is not valid JSON: {error}")
        return None


def _quoted(text: str) -> str:
    """Accept a string given as JSON (``"code-review"`` in quotes) as well as plainly."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _finished(
    cls: type[Policy], fields: dict[str, JsonValue], findings: Findings
) -> tuple[Policy, tuple[str, ...]]:
    policy = msgspec.convert(fields, cls)
    check_selection(policy, "mcp", findings)
    if isinstance(policy, TaskPolicy) and policy.profile_overrides is not None:
        check_selection(policy.profile_overrides, "mcp.profile_overrides", findings)
    if findings.problems:
        raise InvalidRecord(findings.problems)
    return policy, tuple(findings.warnings)


def typed_form(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task that has both forms with the typed one alone; other records as they are."""
    config = task.get("config")
    if "mcp" not in task or not is_object(config):
        return dict(task)
    rest = {name: value for name, value in config.items() if not name.startswith(PREFIX)}
    own = {name: value for name, value in task.items() if name != "config"}
    return {**own, "config": rest} if rest else own
