"""The bundled demo server, as a process and as a record."""

from __future__ import annotations

import json
import sys
import tomllib

import jsonschema_rs
import pytest

from bascule.demo import RECORDS
from bascule.demo.notes import TOOLS, Notebook, call
from bascule.testing import FakeClock

META = "io.modelcontextprotocol/"


@pytest.fixture
def demo(spawn):
    return spawn(sys.executable, "-m", "bascule.demo.server")


def test_it_speaks_both_eras(demo):
    found = demo.modern("server/discover")["result"]
    assert (found["supportedVersions"], found["resultType"]) == (["2026-07-28"], "complete")
    modern = demo.modern("tools/list")["result"]
    assert modern.keys() >= {"ttlMs", "cacheScope", "resultType"}
    hello = demo.ask("initialize", protocolVersion="2025-06-18")["result"]
    assert hello["protocolVersion"] == "2025-06-18"
    demo.send(method="notifications/initialized")
    legacy = demo.ask("tools/list")["result"]
    assert legacy == {"tools": modern["tools"]}
    assert demo.end() == 0


def test_notes_are_written_found_read_and_deleted(demo):
    written = demo.call("write_note", name="tea", text="Darjeeling, first flush")
    assert written["result"]["structuredContent"] == {"name": "tea", "created": True}
    found = demo.call("search_notes", query="DARJEELING")["result"]["structuredContent"]
    assert found["total"] == 1
    assert "first flush" in demo.call("read_note", name="tea")["result"]["content"][0]["text"]
    assert demo.call("delete_note", name="tea")["result"]["structuredContent"]["deleted"]
    gone = demo.call("read_note", name="tea")["result"]
    assert gone["isError"]
    assert "welcome" in gone["content"][0]["text"]


def test_what_it_does_not_understand_gets_an_error_and_it_lives_on(demo):
    assert demo.ask("no/such")["error"]["code"] == -32601
    assert demo.call("no_such")["error"]["code"] == -32602
    old = {META + "protocolVersion": "1999-01-01"}
    assert demo.ask("tools/list", _meta=old)["error"]["code"] == -32022
    for line, code in ((b"nonsense\n", -32700), (b"[]\n", -32600), (b'{"id":1}\n', -32600)):
        demo.process.stdin.write(line)
        demo.process.stdin.flush()
        assert demo.frame()["error"]["code"] == code
    assert demo.ask("ping")["result"] == {}


GOOD_ARGUMENTS = {
    "list_notes": {},
    "read_note": {"name": "welcome"},
    "search_notes": {"query": "bridge", "limit": 1},
    "write_note": {"name": "n", "text": "t"},
    "delete_note": {"name": "shopping"},
    "current_time": {"timezone": "UTC"},
}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_keeps_to_its_own_schemas(tool):
    listed = tool.listed()
    arguments = GOOD_ARGUMENTS[tool.name]
    jsonschema_rs.validate(listed["inputSchema"], arguments)
    result = call(Notebook(), tool.name, arguments)
    jsonschema_rs.validate(listed["outputSchema"], result["structuredContent"])
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert len(listed["description"]) > 20


def test_the_time_is_the_clocks():
    notebook = Notebook(clock=FakeClock(start=0.0))
    value = call(notebook, "current_time", {})["structuredContent"]
    assert value == {"timezone": "UTC", "time": "1970-01-01T00:00:00+00:00"}
    assert call(notebook, "current_time", {"timezone": "Mars/Olympus"})["isError"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_note", {}),
        ("search_notes", {"query": "a", "limit": 0}),
        ("write_note", {"name": "n", "text": ""}),
        ("write_note", {"name": "n", "text": "x" * 20_001}),
        ("current_time", {"timezone": 7}),
        ("current_time", {"timezone": "../etc/passwd"}),
    ],
)
def test_a_bad_argument_is_a_tool_error_in_words(name, arguments):
    result = call(Notebook(), name, arguments)
    assert result["isError"]
    assert result["content"][0]["text"]


def test_the_notebook_does_not_grow_without_end():
    notebook = Notebook(notes={str(n): "x" for n in range(1000)})
    assert call(notebook, "write_note", {"name": "new", "text": "x"})["isError"]
    assert "isError" not in call(notebook, "write_note", {"name": "7", "text": "y"})


def test_its_record_guards_deletion_and_starts_this_server():
    record = tomllib.loads((RECORDS / "notes.toml").read_text(encoding="utf-8"))
    assert record["stdio"] == {"command": "python3", "args": ["-m", "bascule.demo.server"]}
    assert record["approval_policy"]["per_tool"] == {"delete_*": "always"}
    reads = [tool.name for tool in TOOLS if tool.reads_only]
    assert all(
        any(name.startswith(p.rstrip("*")) for p in record["effects"]["read"]) for name in reads
    )
