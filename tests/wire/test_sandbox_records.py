"""The sandbox of a record: its forms, its words, and what is refused by its field."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.errors import InvalidRecord
from bascule.model.platform import PlatformRecord
from bascule.model.sandbox import LEVELS, SHORT_FORMS, Sandbox
from bascule.model.server import ServerRecord
from bascule.wire.pb import records_pb2 as pb
from bascule.wire.protobuf import record_message, record_plain
from bascule.wire.records import Format, decode, dump, encode, parse

STDIO: dict[str, Any] = {"server_id": "fs", "transport": "stdio", "stdio": {"command": "true"}}
#: Each field of a sandbox that is refused, what was given, and a word of what is said.
BAD: list[tuple[Any, str, str]] = [
    ({"level": "jail"}, "sandbox.level", "is not one of"),
    ({"read": ["data"]}, "sandbox.read[0]", "an absolute path"),
    ({"write": ["/a", "../b"]}, "sandbox.write[1]", "an absolute path"),
    ({"read": "/a"}, "sandbox.read", "must be a list"),
    ({"network": "some"}, "sandbox.network", "is not one of"),
    ({"network": "none", "hosts": ["a.example:443"]}, "sandbox.hosts", 'network = "egress"'),
    ({"network": "egress"}, "sandbox.hosts", "at least one host"),
    ({"network": "egress", "hosts": ["https://a.example"]}, "sandbox.hosts[0]", "a host name"),
    ({"network": "egress", "hosts": ["a.example:99999"]}, "sandbox.hosts", "65535"),
    (
        {"level": "landlock", "network": "egress", "hosts": ["a.example"]},
        "sandbox.network",
        "namespaces",
    ),
    ({"level": "limits", "network": "none"}, "sandbox.network", "limits"),
    ({"level": "none", "required": True}, "sandbox.required", "requires nothing"),
    ({"memory_mb": 1}, "sandbox.memory_mb", "at least 64"),
    ({"processes": 0}, "sandbox.processes", "at least 1"),
    ({"cpu_seconds": -1}, "sandbox.cpu_seconds", "at least 1"),
    ({"open_files": 3}, "sandbox.open_files", "at least 16"),
    ({"home_mb": 2**40}, "sandbox.home_mb", "at most"),
    ({"build": "yes"}, "sandbox.build", "true or false"),
    ({"levl": "best"}, "sandbox.levl", "did you mean 'level'"),
    ("files", "sandbox", "files-only"),
    (3, "sandbox", "must be a table"),
]


def read(sandbox: Any) -> ServerRecord:
    return decode(ServerRecord, STDIO | {"sandbox": sandbox})[0]


def problems(cls: type[Any], plain: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidRecord) as refused:
        decode(cls, plain)
    return list(refused.value.problems)


@pytest.mark.requirement("record:sandbox")
def test_a_record_without_a_sandbox_says_nothing_of_one():
    record = decode(ServerRecord, STDIO)[0]
    assert record.sandbox is None
    assert "sandbox" not in encode(record)


@pytest.mark.requirement("record:sandbox")
@pytest.mark.parametrize("word", [*SHORT_FORMS, *LEVELS])
@pytest.mark.parametrize("form", ["json", "toml"])
def test_a_word_stands_for_a_sandbox_and_is_written_as_one(word: str, form: Format):
    record = read(word)
    assert record.sandbox == SHORT_FORMS.get(word) or record.sandbox == Sandbox(level=word)  # pyright: ignore[reportArgumentType]
    again, _ = decode(ServerRecord, parse(dump(record, form).encode(), form))
    assert again == record


@pytest.mark.requirement("record:sandbox")
def test_an_empty_list_of_folders_to_write_to_is_not_an_absent_one():
    assert read({"write": []}).sandbox == Sandbox(write=())
    assert read({}).sandbox == Sandbox(write=(".",))
    for plain in ({"write": []}, {}):
        message = record_message("server", encode(read(plain)))
        sent = pb.McpServerRecord.FromString(message.SerializeToString())
        assert decode(ServerRecord, record_plain(sent))[0] == read(plain)


@pytest.mark.requirement("record:sandbox:refused")
@pytest.mark.parametrize(("sandbox", "path", "words"), BAD, ids=[f"{b[1]}" for b in BAD])
def test_a_sandbox_that_cannot_be_is_refused_by_its_field(sandbox: Any, path: str, words: str):
    (problem,) = problems(ServerRecord, STDIO | {"sandbox": sandbox})
    assert problem.startswith(f"{path}: ")
    assert words in problem


@pytest.mark.requirement("record:sandbox:refused")
def test_every_problem_of_a_sandbox_is_named_at_once():
    bad = {"level": "jail", "read": ["x"], "memory_mb": 1, "network": "some"}
    found = problems(ServerRecord, STDIO | {"sandbox": bad})
    assert {one.partition(":")[0] for one in found} == {
        "sandbox.level",
        "sandbox.read[0]",
        "sandbox.memory_mb",
        "sandbox.network",
    }


def test_a_sandbox_of_a_remote_server_is_advised_against():
    remote = {"server_id": "a", "transport": "http", "http": {"url": "https://a.example/mcp"}}
    _, warnings = decode(ServerRecord, remote | {"sandbox": "no-access"})
    assert [one for one in warnings if one.startswith("sandbox: is not used by")]


@pytest.mark.requirement("record:sandbox:floor")
@pytest.mark.parametrize(
    ("floor", "path"),
    [
        ({"level": "jail"}, "sandbox.level"),
        ({"network": "none"}, "sandbox.network"),
        ({"level": "best", "hosts": ["a.example"]}, "sandbox.hosts"),
        ({"level": "best", "memory_mb": 1}, "sandbox.memory_mb"),
        ({"read": ["/a"]}, "sandbox.read"),
    ],
    ids=["level", "network", "hosts", "memory", "grants"],
)
def test_a_floor_that_cannot_be_is_refused_by_its_field(floor: dict[str, Any], path: str):
    (problem,) = problems(PlatformRecord, {"sandbox": floor})
    assert problem.startswith(f"{path}: ")
