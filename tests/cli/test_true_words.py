"""What the commands say of a write is what happened, and a slip is never a success."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.cli.served import Served, served


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("words")) as process:
        assert process("servers", "add", "mine", "--allow", "read_*", "--", "true").code == 0
        assert process("tasks", "add", "job", "--server", "mine").code == 0
        yield process


@pytest.mark.requirement("record:unknown-field:refused")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tasks", "set", "job", 'mcp.tool_denylst=["x"]'), "mcp.tool_denylst: unknown field; did"),
        (("servers", "set", "mine", 'alowed_tools=["x"]'), "alowed_tools: unknown field; did you"),
        (("servers", "set", "mine", "isolation.network=false"), "isolation: unknown field"),
        (("tasks", "set", "job", "mcp.tool_alowlist=null"), "mcp.tool_alowlist: unknown field"),
        (("tasks", "add", "t", "--server", "mine", "--deny-tool", "mcp__mine__x"), "models use"),
        (("servers", "add", "other", "--allow", "mcp.other.x", "--", "true"), "models use"),
    ],
)
def test_a_slip_is_refused_and_nothing_is_called_changed(
    up: Served, words: tuple[str, ...], said: str
):
    before = up.revision
    done = up(*words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert up.revision == before


@pytest.mark.requirement("cli:changed")
def test_changed_is_said_only_when_the_revision_moved(up: Served):
    for words in (
        ("servers", "set", "mine", "display_name=Mine"),
        ("tasks", "set", "job", "mcp.read_only=true"),
    ):
        first, again = up(*words), up(*words)
        assert first.out.startswith("changed ")
        assert again.out.startswith("unchanged ")
        assert up.json(*words)["changed"] is False


@pytest.mark.requirement("registry:nothing-there")
def test_what_is_not_there_is_no_success(up: Served):
    adopted = up("servers", "adopt", "mine")
    assert (adopted.code, adopted.out) == (1, "")
    assert "no file owns server 'mine'" in adopted.err
    assert up("servers", "adopt", "nobody").code == 1
    back = up("servers", "rollback", "0", "--only", "server/nobody")
    assert (back.code, back.out) == (1, "")
    assert "there is no server 'nobody'" in back.err


@pytest.mark.requirement("task:doubtful")
def test_a_task_for_a_server_that_is_not_there_is_warned_about(up: Served):
    done = up("tasks", "add", "early", "--server", "nobody")
    assert done.code == 0
    assert "there is no server 'nobody'" in done.err
    bare = up("tasks", "add", "bare")
    assert "MCP is enabled but no default server is selected" in bare.err


@pytest.mark.requirement("registry:diff:fields")
def test_a_difference_shows_what_changed(up: Served):
    before = up.revision
    up("servers", "set", "mine", 'allowed_tools=["read_*","list"]')
    text = up("servers", "diff", str(before)).out
    assert "~ server mine\n    allowed_tools: read_* -> read_*, list\n" in text
    fields = up.json("servers", "diff", str(before))["fields"]
    assert [(one["id"], one["field"]) for one in fields] == [("mine", "allowed_tools")]
    assert "~server/mine (allowed_tools)" in " ".join(up("servers", "history").out.split())
    back = up("servers", "rollback", str(before), "--only", "server/mine")
    assert "allowed_tools: read_*, list -> read_*" in back.out


@pytest.mark.requirement("names:spellings", "names:unknown:told", "policy:explain:code")
def test_tools_are_named_in_any_spelling(up: Served):
    for name in ("notes.list_notes", "notes/list_notes", "mcp__notes__list_notes", "list_notes"):
        assert up("tools", "call", name, "--task", "demo").code == 0
    slip = up("tools", "call", "notes.lst_notes", "--task", "demo", "--json")
    error = slip.json["error"]
    assert (slip.code, error["code"]) == (1, "mcp_invalid_arguments")
    assert error["details"]["reason"] == "unknown_tool"
    assert "mcp__notes__list_notes" in error["details"]["did_you_mean"]
    unknown = up("tools", "call", "echo", "--task", "demo")
    assert "no server of that id" not in unknown.err
    assert up("tools", "explain", "mine/x", "--task", "demo").code == 10
    assert up("tools", "explain", "notes.list_notes", "--task", "demo").code == 0
