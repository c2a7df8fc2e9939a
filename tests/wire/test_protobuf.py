"""Records and what nodes say, as protobuf messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from msgspec.structs import replace

from bascule.control.registry.masks import masked
from bascule.errors import InvalidRecord
from bascule.model.approval import (
    Approval,
    ApprovalRequest,
    Approved,
    Decided,
    Denied,
    ExactCall,
    Waiting,
)
from bascule.model.backend import BackendRecord
from bascule.model.kinds import CLASSES, COLLECTIONS, KEY_FIELDS, KINDS, Kind
from bascule.model.server import ServerRecord
from bascule.wire.api.nodes import ServerWords
from bascule.wire.api.records import Beside
from bascule.wire.api.trials import ToolPreview, ToolPreviews, Trial, TrialStep
from bascule.wire.pb import node_pb2, records_pb2, registry_pb2
from bascule.wire.protobuf import (
    MESSAGES,
    record_message,
    record_plain,
    struct_message,
    struct_of,
    unknown_fields,
)
from bascule.wire.records import decode, encode
from tests.wire.full_records import FULL
from tests.wire.message_shapes import complaints

SERVICE = registry_pb2.DESCRIPTOR.services_by_name["McpRegistryService"]
CALL = ExactCall(
    task_id="t",
    server_id="fs",
    tool_name="write",
    arguments_digest="a",
    definition_digest="d",
    policy_digest="p",
    rule="server: always",
    person=None,
    caller="alice",
    token_id="k",
)
QUESTION = Approval(
    id="ap_1",
    state="pending",
    call=CALL,
    session_id="s",
    request_id="r",
    revision=7,
    maker=None,
    asked_at=1.5,
    expires_at=2.5,
    digest="q",
)
DECIDED = Decided(verb="approve", by="bob", token_id=None, person=None, at=2.0)
STEP = TrialStep(step="list", ok=False, duration_ms=1.5, message="it ended")
SAID: list[tuple[msgspec.Struct, type[Message]]] = [
    (ServerWords(server_id="fs", state="down", tool_count=0), node_pb2.ServerStatus),
    (
        ServerWords(
            server_id="fs",
            state="degraded",
            trouble="slow",
            last_error="it waits",
            tool_count=3,
            latency_ms=0.0,
            average_latency_ms=1.25,
            reconnects=2,
            starting="fetching",
        ),
        node_pb2.ServerStatus,
    ),
    (STEP, node_pb2.TrialStep),
    (Trial(ok=False, duration_ms=2.0, steps=(STEP,), stderr=("a", "")), node_pb2.Trial),
    (ToolPreviews("fs", ()), node_pb2.ToolPreviews),
    (
        ToolPreviews(
            "fs",
            (ToolPreview(tool="a", name="mcp__fs__a", allowed=False, layer="task", reason="r"),),
        ),
        node_pb2.ToolPreviews,
    ),
    (CALL, node_pb2.ExactCall),
    (Approved(CALL, "ap_1"), node_pb2.Approved),
    (Denied("no"), node_pb2.Denied),
    (Waiting("ap_1", 1.5), node_pb2.Waiting),
    (QUESTION, node_pb2.Approval),
    (replace(QUESTION, state="claimed", decided=DECIDED, node="east"), node_pb2.Approval),
    (
        ApprovalRequest(
            request_id="r",
            session_id="s",
            caller=None,
            task_id=None,
            server="fs",
            tool="write",
            arguments={"n": 2**70, "path": None},
            arguments_digest="a",
            definition_digest="d",
            revision=7,
            rule="platform: always",
            payload=b'{"n":\xff}',
            definition={"name": "write", "inputSchema": {"type": "object"}},
        ),
        node_pb2.ApprovalRequest,
    ),
]


def server(**fields: Any) -> dict[str, Any]:
    return {"server_id": "fs", "transport": "stdio", "stdio": {"command": "x"}, **fields}


def problems(message: Any) -> str:
    with pytest.raises(InvalidRecord) as caught:
        record_plain(message)
    return str(caught.value)


# --- every field has a place


@pytest.mark.requirement("record:formats:protobuf")
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_has_a_place_for_every_field_of_its_record(kind: Kind):
    assert [*complaints(CLASSES[kind], MESSAGES[kind].DESCRIPTOR)] == []


@pytest.mark.parametrize(("said", "message"), SAID)
def test_a_message_has_a_place_for_all_that_a_node_says(
    said: msgspec.Struct, message: type[Message]
):
    assert [*complaints(type(said), message.DESCRIPTOR)] == []


def test_a_field_that_a_record_gets_and_its_message_does_not_is_noticed():
    newer = changed_backend("colour", str, "")
    (found,) = complaints(newer, records_pb2.BackendRecord.DESCRIPTOR)
    assert found == "colour: is not in the message"


def changed_backend(*field: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct("Changed", [field], bases=(BackendRecord,), kw_only=True)


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (("models", tuple[str, ...] | None, None), "models: absent and empty are the same"),
        (("models", tuple[str, ...], ("a",)), "models: absent and empty are the same"),
        (("models", tuple[int, ...], ()), "models: IntType does not fit"),
        (("insecure", str, ""), "insecure: StrType does not fit"),
        (("headers", dict[str, int], {}), "headers: IntType does not fit"),
        (("key_ref", str | ServerRecord, ""), "key_ref: is no choice"),
    ],
)
def test_a_field_that_does_not_fit_into_its_message_is_noticed(
    field: tuple[str, Any, Any], complaint: str
):
    (found,) = complaints(changed_backend(*field), records_pb2.BackendRecord.DESCRIPTOR)
    assert found.startswith(complaint)


@pytest.mark.requirement("record:formats:protobuf")
@pytest.mark.parametrize("name", FULL)
def test_a_full_record_survives_field_by_field(name: str):
    cls, plain = FULL[name]
    kind: Kind = next(kind for kind in KINDS if CLASSES[kind] is cls)
    record, _ = decode(cls, plain)
    message = record_message(kind, encode(record))
    again = type(message).FromString(message.SerializeToString())
    assert encode(decode(cls, record_plain(again))[0]) == encode(record)


@pytest.mark.parametrize(("said", "message"), SAID)
def test_what_a_node_says_survives(said: msgspec.Struct, message: type[Message]):
    sent = message.FromString(struct_message(message, said).SerializeToString())
    assert struct_of(type(said), sent) == said


def test_what_a_node_may_not_say_is_refused_with_its_path():
    with pytest.raises(InvalidRecord, match=r"state"):
        struct_of(ServerWords, node_pb2.ServerStatus(server_id="fs", state="odd"))


# --- names


@pytest.mark.requirement("record:formats:protobuf")
def test_a_list_and_a_light_event_have_the_names_of_the_requirement():
    listed = registry_pb2.ListMcpServersResponse(
        revision=123,
        servers=[
            records_pb2.McpServerRecord(server_id="fs", transport="stdio", allowed_tools=["read_*"])
        ],
    )
    event = registry_pb2.WatchMcpServersResponse(revision=124, upserts=["fs"], deletes=["jira"])
    assert shown(listed) == {
        "revision": "123",
        "servers": [{"server_id": "fs", "transport": "stdio", "allowed_tools": ["read_*"]}],
    }
    assert shown(event) == {"revision": "124", "upserts": ["fs"], "deletes": ["jira"]}


def shown(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_same_methods(kind: Kind):
    stem = "McpServer" if kind == "server" else kind.title()
    many = stem if kind == "platform" else f"{stem}s"
    first = "GetPlatform" if kind == "platform" else f"List{many}"
    methods = [SERVICE.methods_by_name[name] for name in (first, f"Watch{many}")]
    methods += [SERVICE.methods_by_name[f"{verb}{stem}"] for verb in ("Upsert", "Delete")]
    assert [method.server_streaming for method in methods] == [False, True, False, False]
    listed, watched, written, removed = methods
    record = MESSAGES[kind].DESCRIPTOR
    for message, field in (
        (listed.output_type, COLLECTIONS[kind]),
        (watched.output_type, COLLECTIONS[kind]),
        (written.input_type, kind),
        (written.output_type, kind),
    ):
        assert message.fields_by_name[field].message_type is record
    if kind in KEY_FIELDS:
        assert KEY_FIELDS[kind] in removed.input_type.fields_by_name
    assert {*watched.input_type.fields_by_name} == {
        "since_revision",
        "store_id",
        "mark",
        "include_objects",
        "send_initial",
    }


def test_no_kind_has_methods_that_others_lack():
    assert len(SERVICE.methods) == 4 * len(KINDS)


# --- what is shown, and what comes back


def test_a_masked_record_has_no_literal_in_its_bytes():
    record, _ = decode(ServerRecord, server(stdio={"command": "x", "env": {"A": "hunter2"}}))
    message = record_message("server", masked("server", record))
    assert b"hunter2" not in message.SerializeToString()
    assert b"hunter2" in record_message("server", encode(record)).SerializeToString()
    assert record_plain(message)["stdio"]["env"] == {"A": "***"}


@pytest.mark.requirement("record:unknown-field:kept")
def test_what_stands_beside_a_record_is_left_aside_but_for_stored_unknown_fields():
    beside = Beside(revision=7, updated_at="2026-01-01T00:00:00Z", owner=None)
    extra = {"colour": ["red", None], "stdio": {"nice": 2**70}}
    message = record_message("server", server(), beside=beside, extra=extra)
    assert (message.info.revision, message.info.updated_at) == (7, "2026-01-01T00:00:00Z")
    assert not message.info.HasField("owner")
    plain = record_plain(message)
    assert "info" not in plain
    assert plain["colour"] == ["red", None]
    assert plain["stdio"] == {"command": "x", "args": [], "env": {}, "env_from": [], "nice": 2**70}


def test_a_table_comes_back_in_the_order_of_its_keys():
    env = {name: name for name in "qwertzuiop"}
    message = record_message("server", server(stdio={"command": "x", "env": env}))
    assert [*record_plain(message)["stdio"]["env"]] == sorted(env)


def test_a_name_without_a_place_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match="colour"):
        record_message("server", server(colour="red"))


# --- what is refused


@pytest.mark.requirement("record:formats:protobuf-unknown")
def test_every_unknown_field_is_refused_with_its_path():
    strange = b"\xf8\x7f\x01"
    message = records_pb2.McpServerRecord(server_id="fs")
    message.stdio.MergeFromString(strange * 2)
    message.approval_policy.rules.add()
    message.approval_policy.rules.add().tools.MergeFromString(strange)
    message.info.extra["a"].MergeFromString(strange)
    assert [*unknown_fields(message)] == [
        "stdio.2047: unknown field",
        "approval_policy.rules[1].tools.2047: unknown field",
        "info.extra.a.2047: unknown field",
    ]
    assert "stdio.2047: unknown field" in problems(message)


@pytest.mark.requirement("record:formats:protobuf-unknown")
def test_so_many_unknown_fields_are_named_and_no_more():
    # Two bytes of a tag are seven bits each, the lowest first; the type is a varint.
    tags = [((number << 3) & 0x7F | 0x80, number >> 4, 1) for number in range(500, 1_500)]
    message = records_pb2.McpServerRecord.FromString(b"".join(map(bytes, tags)))
    found = [*unknown_fields(message)]
    assert (found[0], len(found)) == ("500: unknown field", 100)


@pytest.mark.parametrize("text", ["", "{", '{"a":1,"a":2}', "NaN", "[" * 100 + "]" * 100])
def test_json_that_is_none_is_refused_with_its_path(text: str):
    message = records_pb2.TaskRecord(task_id="t")
    message.config["colour"].text = text
    assert "config.colour: is not valid JSON" in problems(message)


def test_a_choice_that_is_not_made_is_refused():
    message = records_pb2.McpServerRecord(server_id="fs")
    message.hygiene.redact.SetInParent()
    assert "hygiene.redact: needs a word or a table" in problems(message)


def test_the_greatest_number_of_a_record_fits():
    most = 2**63 - 1
    record, _ = decode(CLASSES["platform"], {"ceilings": {"max_concurrency": most}})
    message = record_message("platform", encode(record))
    assert decode(CLASSES["platform"], record_plain(message))[0] == record
    with pytest.raises(InvalidRecord, match=r"ceilings\.max_concurrency"):
        decode(CLASSES["platform"], {"ceilings": {"max_concurrency": most + 1}})
