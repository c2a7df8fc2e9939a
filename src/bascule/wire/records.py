"""Records in and out: dict, JSON and TOML, by one validator.

Input may use any spelling the seeds use; output has one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal, TypeVar

import msgspec
from msgspec import inspect

from bascule.errors import InvalidRecord
from bascule.model.backend import BackendRecord
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.kinds import Record
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import TRANSPORT_SPELLINGS, ServerRecord
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord
from bascule.wire import record_rules as rules
from bascule.wire.collector import Findings, collect
from bascule.wire.defaults import without_defaults
from bascule.wire.sandbox_rules import sandbox_table
from bascule.wire.strict_json import StrictJsonError, loads
from bascule.wire.task_config import PREFIX, task_policy_fields

R = TypeVar("R", bound=Record)
Format = Literal["json", "toml"]

_CHECKS: dict[type[object], Callable[..., None]] = {
    ServerRecord: rules.check_server,
    TaskRecord: rules.check_task,
    ProfileRecord: rules.check_profile,
    PlatformRecord: rules.check_platform,
    BackendRecord: rules.check_backend,
    UserRecord: rules.check_user,
}
_PLACEHOLDERS: dict[type[object], Mapping[str, str]] = {
    ServerRecord: {"server_id": "x", "transport": "stdio"},
    TaskRecord: {"task_id": "x"},
    ProfileRecord: {"name": "x"},
    BackendRecord: {"name": "x", "base_url": "https://x"},
    UserRecord: {"user_id": "x"},
}


def decode(
    cls: type[R],
    data: JsonObject,
    *,
    strict: bool = False,
    source: str | None = None,
    lenient: bool = False,
    familiar: frozenset[str] = frozenset(),
) -> tuple[R, tuple[str, ...]]:
    """Read a record from plain values; return it with its warnings.

    Raise InvalidRecord with every problem, unknown fields among them. ``strict`` refuses what
    otherwise is a warning, such as credentials in the process list; for ``lenient`` and
    ``familiar`` see ``Findings``.
    """
    findings = Findings(strict=strict, lenient=lenient, familiar=familiar)
    plain = _normalised(cls, data, findings)
    clean = collect(_description(cls), plain, "", findings)
    if not is_object(clean):
        raise InvalidRecord(findings.problems, source=source)
    if "transport" in findings.broken:
        findings.broken |= {"stdio", "http"}
    # What is broken stands at its default here, so that the rules can report the rest as well.
    record = msgspec.convert({**_PLACEHOLDERS.get(cls, {}), **clean}, cls)
    _CHECKS[cls](record, findings)
    if findings.problems:
        raise InvalidRecord(findings.problems, source=source)
    return record, tuple(findings.warnings)


@cache
def _description(cls: type[object]) -> inspect.Type:
    """Return what msgspec knows of a record's fields; to find out takes a millisecond."""
    return inspect.type_info(cls)


def encode(record: Record) -> dict[str, JsonValue]:
    """Return a record as plain values: the version first, defaults left out."""
    plain: dict[str, JsonValue] = msgspec.to_builtins(record)
    return {"version": record.version, **without_defaults(plain, record)}


def parse(text: bytes, form: Format, *, source: str | None = None) -> JsonObject:
    """Read the plain values of one JSON or TOML text, or say in which line it is broken."""
    value = _parse_json(text, source) if form == "json" else _parse_toml(text, source)
    if not is_object(value):
        raise InvalidRecord(["must be a table of fields"], source=source)
    return value


def dump(record: Record, form: Format) -> str:
    """Write one record as JSON or TOML text."""
    plain = encode(record)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    import tomli_w  # noqa: PLC0415 - only writing TOML needs it

    return tomli_w.dumps(plain)


def _parse_json(text: bytes, source: str | None) -> JsonValue:
    try:
        return loads(text)
    except StrictJsonError as error:
        raise InvalidRecord([f"is not valid JSON: {error}"], source=source) from error


def _parse_toml(text: bytes, source: str | None) -> JsonValue:
    try:
        return tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise InvalidRecord([f"is not valid UTF-8 at line {line}"], source=source) from error
    except tomllib.TOMLDecodeError as error:
        last = text.rstrip().count(b"\n") + 1
        reason = str(error).replace("at end of", f"at line {last}, the end of")
        raise InvalidRecord([f"is not valid TOML: {reason}"], source=source) from error


def _normalised(cls: type[object], data: JsonObject, findings: Findings) -> JsonValue:
    """Bring the spellings of the seeds to the canonical form."""
    if not is_object(data):
        return data
    if cls is ServerRecord:
        return _normalised_server(data, findings)
    return _normalised_task(data, findings) if cls is TaskRecord else data


def _normalised_server(data: JsonObject, findings: Findings) -> dict[str, JsonValue]:
    plain = dict(data)
    transport = plain.get("transport")
    if isinstance(transport, str):
        plain["transport"] = TRANSPORT_SPELLINGS.get(transport, transport)
    if isinstance(plain.get("approval_policy"), str):
        plain["approval_policy"] = {"default": plain["approval_policy"]}
    if isinstance(word := plain.get("sandbox"), str):
        plain["sandbox"] = sandbox_table(word, findings)
    return plain


def _normalised_task(data: JsonObject, findings: Findings) -> dict[str, JsonValue]:
    """Move the ``mcp.*`` keys of a config map into the typed object."""
    plain = dict(data)
    config = plain.get("config")
    if not is_object(config):
        return plain
    fields = task_policy_fields(config, findings)
    if fields and "mcp" in plain:
        findings.problem("config", "has both mcp.* keys and an mcp object; keep one of them")
    elif fields:
        plain["mcp"] = fields
    plain["config"] = {k: v for k, v in config.items() if not str(k).startswith(PREFIX)}
    return plain
