"""What a server missed inside its sandbox: in words, and as a sandbox that grants it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec import json

from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.sandbox import OWN_CWD
from bascule.wire.api.trials import Missed

#: What is true of a list of grants that a record does not have.
_ABSENT: dict[str, list[JsonValue]] = {"read": [], "write": [OWN_CWD], "hosts": []}


def missed_words(missed: Sequence[Missed]) -> Iterator[str]:
    """Say what a server did not get, and which option or field would give it."""
    for one in missed:
        value = shlex.quote(one.value)
        if one.field == "read":
            yield f"it could not read {one.wanted}: --read {value} (sandbox.read) grants it"
        elif one.field == "write":
            yield f"it could not write {one.wanted}: --write {value} (sandbox.write) grants it"
        elif one.field == "hosts":
            yield f"it did not reach {one.wanted}: --host {value} (sandbox.hosts) lets it"
        elif one.field == "network":
            where = one.wanted or "the network"
            yield f"it did not reach {where}: --network {value} (sandbox.network) lets it"
        else:
            yield f"it asked for {one.wanted}, which no server is granted"


def with_missed(record: JsonObject, missed: Sequence[Missed]) -> dict[str, JsonValue] | None:
    """Return a record that grants what was missed besides; None where nothing can be granted."""
    sandbox = {**_sandbox(record)}
    everywhere = any(one.field == "network" for one in missed)
    if everywhere:
        sandbox["network"] = "full"
        sandbox.pop("hosts", None)
    for one in missed:
        if one.field not in _ABSENT or (one.field == "hosts" and everywhere):
            continue
        if one.field == "hosts":
            sandbox["network"] = "egress"
        given = sandbox.get(one.field, _ABSENT[one.field])
        before = list(given) if is_array(given) else []
        if one.value not in before:
            sandbox[one.field] = [*before, one.value]
    return {**record, "sandbox": sandbox} if sandbox != _sandbox(record) else None


def granting_words(before: JsonObject, after: JsonObject) -> str:
    """Return the words for ``servers set`` that make one record's sandbox another's."""
    old, new = _sandbox(before), _sandbox(after)
    fields = [field for field in (*new, *old) if new.get(field) != old.get(field)]
    words = [f"sandbox.{field}={_json(new.get(field))}" for field in dict.fromkeys(fields)]
    return shlex.join(words)


def _sandbox(record: JsonObject) -> JsonObject:
    table = record.get("sandbox")
    return table if is_object(table) else {}


def _json(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.encode(value).decode()
