"""The laws of records: what is written is read back the same, and nothing odd gets through."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.errors import InvalidRecord
from bascule.model.kinds import CLASSES
from bascule.model.task import TaskRecord
from bascule.wire.records import decode, dump, encode, parse
from bascule.wire.task_config import parse_session_params, parse_task_config, task_config
from tests.laws import record_strategies as plain
from tests.scale import scaled
from tests.wire.full_records import places, put

KINDS: dict[str, tuple[type[Any], st.SearchStrategy[dict[str, Any]]]] = {
    kind: (CLASSES[kind], values) for kind, values in plain.BY_KIND.items()
}
LISTS = ("default_server_ids", "allowed_server_ids", "server_tags", "tool_allowlist")
each_kind = pytest.mark.parametrize("kind", KINDS)
few = settings(max_examples=scaled(1000))


@pytest.mark.requirement("record:formats:round-trip", "record:formats:json-toml-dict")
@each_kind
@few
@given(data=st.data())
def test_encode_then_decode_is_the_identity_in_every_format(kind: str, data: st.DataObject):
    cls, values = KINDS[kind]
    record, _ = decode(cls, data.draw(values))
    assert decode(cls, encode(record))[0] == record
    for form in ("json", "toml"):
        again, warnings = decode(cls, parse(dump(record, form).encode(), form))
        assert again == record, form
        assert dump(again, form) == dump(record, form)
        assert not any("unknown" in warning for warning in warnings)


@each_kind
@few
@given(data=st.data())
def test_what_is_encoded_is_accepted_by_the_strictest_reader_of_shapes(
    kind: str, data: st.DataObject
):
    cls, values = KINDS[kind]
    record, warnings = decode(cls, data.draw(values))
    if not warnings:
        assert decode(cls, encode(record), strict=True) == (record, ())


@pytest.mark.requirement("task:absent-empty", "record:formats:round-trip")
@given(plain.TASKS, st.sampled_from(LISTS), st.sampled_from(["dict", "json", "toml", "map"]))
def test_an_absent_list_and_an_empty_one_stay_different(task: dict[str, Any], key: str, form: str):
    task = {"mcp": {}, **task}
    absent = {k: v for k, v in task["mcp"].items() if k != key}
    for mcp, expected in ((absent, None), (absent | {key: []}, ())):
        record, _ = decode(TaskRecord, task | {"mcp": mcp})
        assert getattr(read_back(record, form), key) == expected


def read_back(record: TaskRecord, form: str) -> Any:
    if form == "map":
        return parse_task_config(task_config(record.mcp))[0]
    if form == "dict":
        return decode(TaskRecord, encode(record))[0].mcp
    text = dump(record, "json" if form == "json" else "toml").encode()
    return decode(TaskRecord, parse(text, "json" if form == "json" else "toml"))[0].mcp


@pytest.mark.requirement("task:forms-agree")
@given(plain.POLICIES)
def test_the_typed_object_and_the_string_map_give_the_same_task(policy: dict[str, Any]):
    typed, _ = decode(TaskRecord, {"task_id": "t", "mcp": policy})
    config = task_config(typed.mcp)
    assert all(isinstance(value, str) for value in config.values())
    mapped, _ = decode(TaskRecord, {"task_id": "t", "config": config})
    assert mapped == typed
    assert parse_task_config(config)[0] == typed.mcp


@given(plain.SESSIONS)
def test_a_session_reads_the_same_from_values_and_from_strings(session: dict[str, Any]):
    as_values = {f"mcp.{key}": value for key, value in session.items()}
    as_strings = {key: msgspec.json.encode(value).decode() for key, value in as_values.items()}
    assert parse_session_params(as_values) == parse_session_params(as_strings)


ODDITIES = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -1,
        1.0,
        1.5,
        float("nan"),
        float("inf"),
        10**30,
        "",
        "\0",
        "x" * 300,
        "__",
        "/",
        "*/x",
        "${",
        "secret://",
        "caf\u00e9\n",
        [],
        [None],
        [[]],
        {},
        {"": None},
        {"keys": 1},
        b"bytes",
    ]
)


@pytest.mark.requirement("record:validate:path")
@each_kind
@few
@given(data=st.data(), odd=ODDITIES)
def test_whatever_is_put_into_a_record_is_read_or_refused_with_its_path(
    kind: str, data: st.DataObject, odd: Any
):
    """Either it is a record that can be written again, or every problem says where it is."""
    cls, values = KINDS[kind]
    good = data.draw(values)
    path = data.draw(st.sampled_from(places({**good, "version": 1})))
    record, problems = attempted(cls, put({**good, "version": 1}, path, odd))
    if record is None:
        assert problems
        assert all(str(path[0]) in problem for problem in problems), problems
    else:
        assert decode(cls, parse(dump(record, "json").encode(), "json"))[0] == record


def attempted(cls: type[Any], values: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    try:
        return decode(cls, values)[0], ()
    except InvalidRecord as refused:
        return None, refused.problems
