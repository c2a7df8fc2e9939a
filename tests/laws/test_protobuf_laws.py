"""The laws of records as protobuf: nothing is lost either way, and nothing unknown gets in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.control.registry.masks import masked
from bascule.errors import InvalidRecord
from bascule.model.kinds import CLASSES, KINDS, Kind
from bascule.model.task import TaskRecord
from bascule.wire.protobuf import MESSAGES, RecordMessage, record_message, record_plain
from bascule.wire.records import decode, encode
from tests.laws import record_strategies as plain
from tests.scale import scaled

each_kind = pytest.mark.parametrize("kind", KINDS)
few = settings(max_examples=scaled(1000))
LISTS = ("default_server_ids", "allowed_server_ids", "server_tags", "tool_allowlist")
#: A number that no message has, with a varint, and with bytes.
STRANGE = st.sampled_from([b"\xf8\x7f\x01", b"\xfa\x7f\x03abc"])


def sent(message: RecordMessage) -> RecordMessage:
    return type(message).FromString(message.SerializeToString())


@pytest.mark.requirement("record:formats:protobuf", "record:formats:round-trip")
@each_kind
@few
@given(data=st.data())
def test_every_record_survives_as_a_message(kind: Kind, data: st.DataObject):
    record, _ = decode(CLASSES[kind], data.draw(plain.BY_KIND[kind]))
    message = sent(record_message(kind, encode(record)))
    assert decode(CLASSES[kind], record_plain(message))[0] == record


@each_kind
@few
@given(data=st.data())
def test_every_message_of_a_record_survives_as_plain_values(kind: Kind, data: st.DataObject):
    record, _ = decode(CLASSES[kind], data.draw(plain.BY_KIND[kind]))
    for form in (encode(record), masked(kind, record)):
        message = record_message(kind, form)
        assert record_message(kind, record_plain(sent(message))) == message


@pytest.mark.requirement("record:formats:protobuf", "task:absent-empty")
@given(plain.TASKS, st.sampled_from(LISTS))
def test_an_absent_list_and_an_empty_one_stay_different(task: dict[str, Any], key: str):
    task = {"mcp": {}, **task}
    absent = {k: v for k, v in task["mcp"].items() if k != key}
    for mcp, expected in ((absent, None), (absent | {key: []}, ())):
        record, _ = decode(TaskRecord, task | {"mcp": mcp})
        message = sent(record_message("task", encode(record)))
        again, _ = decode(TaskRecord, record_plain(message))
        assert getattr(again.mcp, key) == expected


@pytest.mark.requirement("record:formats:protobuf-unknown")
@each_kind
@few
@given(data=st.data())
def test_an_unknown_field_is_refused_and_left_aside_where_that_is_allowed(
    kind: Kind, data: st.DataObject
):
    record, _ = decode(CLASSES[kind], data.draw(plain.BY_KIND[kind]))
    text = record_message(kind, encode(record)).SerializeToString() + data.draw(STRANGE)
    message = MESSAGES[kind].FromString(text)
    with pytest.raises(InvalidRecord, match="2047: unknown field"):
        record_plain(message)
    assert decode(CLASSES[kind], record_plain(message, lenient=True))[0] == record
