"""``bascule servers``, ``tasks``, ``profiles``, ``backends``, ``rescan`` on a running process."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import Served, command, served

EDITED = """\
// VS Code's own form
{
  "inputs": [{"type": "promptString", "id": "key", "password": true},],
  "servers": {
    "Perplexity": {
      "command": "npx", /* started
      here */
      "args": ["https://example.com/a,]", "// no comment"],
      "env": {"API_KEY": "${input:key}"},
    },
  },
}
"""

DEMO = ("--", sys.executable, "-m", "bascule.demo.server")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of records that the process loads."""
    path = tmp_path_factory.mktemp("records")
    (path / "owned.toml").write_text(toml("owned"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up"), "--registry-dir", str(folder)) as up:
        yield up


def toml(server_id: str, **fields: Any) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    head = [f'server_id = "{server_id}"', 'transport = "stdio"', *lines]
    return "\n".join([*head, "[stdio]", 'command = "true"', ""])


def ids(listed: Any, noun: str = "servers", key: str = "server_id") -> set[str]:
    return {record[key] for record in listed[noun]}


# --- records


@pytest.mark.requirement("cli:registry:crud", "cli:servers")
def test_a_server_is_added_read_changed_listed_and_removed(up: Served):
    options = ("--allow", "list_*", "--tag", "t", "--env", "A=b", "--env-from", "HOME")
    added = up.json("servers", "add", "crud", *options, "--cwd", "/", *DEMO)
    assert added["server"]["stdio"]["args"] == ["-m", "bascule.demo.server"]
    read = up.json("servers", "get", "crud")
    assert read["allowed_tools"] == ["list_*"]
    assert read["tags"] == ["t"]
    assert read["stdio"]["env"] == {"A": "***"}
    assert read["stdio"]["env_from"] == ["HOME"]
    assert read["revision"] == added["revision"]
    words = ("servers", "set", "crud", "budgets.tool_timeout_ms=20000", 'tags=["u"]')
    changed = up.json(*words)["server"]
    assert changed["budgets"] == {"tool_timeout_ms": 20000}
    assert (changed["tags"], changed["allowed_tools"]) == (["u"], ["list_*"])
    assert "crud" in up("servers", "list").out
    assert "crud" in ids(up.json("servers", "list"))
    removed = up("servers", "remove", "crud")
    assert removed.code == 0
    assert "crud" not in ids(up.json("servers", "list"))
    back = removed.err.partition("bascule ")[2].split()
    assert up(*back).code == 0
    assert up.json("servers", "get", "crud")["tags"] == ["u"]


def test_a_server_at_a_url_is_added_with_its_headers(up: Served):
    words = ("servers", "add", "remote", "--url", "https://mcp.example.com/mcp", "--allow", "*")
    more = ("--header", "X-Team=${ENV:TEAM}", "--auth-ref", "${ENV:TOKEN}")
    added = up.json(*words, *more, "--transport", "sse")["server"]
    assert added["transport"] == "http_sse_legacy"
    assert added["http"] == {
        "url": "https://mcp.example.com/mcp",
        "headers": {"X-Team": "${ENV:TEAM}"},
        "auth_ref": "${ENV:TOKEN}",
    }


@pytest.mark.parametrize(
    "words",
    [
        ("servers", "add", "x"),
        ("servers", "add", "x", "--url", "http://a", "--", "b"),
        ("servers", "add", "x", "--env", "A=b", "--url", "http://a"),
        ("servers", "add", "x", "--header", "A=b", "--", "c"),
        ("servers", "add", "x", "--env", "novalue", "--", "c"),
        ("servers", "set", "x", "novalue"),
        ("servers", "diff", "yesterday"),
        ("servers", "rollback", "1", "--only", "thing/x"),
        ("servers", "apply", "x.toml", "--dry-run", "--replace"),
        ("backends", "add", "x"),
    ],
)
def test_wrong_usage_is_exit_code_two(up: Served, words: tuple[str, ...]):
    done = up(*words)
    assert (done.code, done.out) == (2, "")
    assert "usage:" in done.err


def test_a_problem_is_told_with_the_path_of_its_field(up: Served):
    revision = up.revision
    words = ("servers", "add", "Bad", "--tag", "a b", *DEMO)
    done = up(*words)
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert any(line.startswith("error: server_id: ") for line in lines)
    assert any(line.startswith("error: tags[0]: ") for line in lines)
    told = up(*words[:5], "--json", *DEMO).json["error"]
    assert told["code"] == "invalid_record"
    assert len(told["details"]["problems"]) == 2
    assert up.revision == revision


def test_what_is_there_already_is_not_added_again(up: Served):
    up("servers", "add", "twice", *DEMO)
    again = up("servers", "add", "twice", "--json", *DEMO)
    assert again.code == 1
    assert again.json["error"]["code"] == "already_exists"


def test_what_is_not_there_is_said_not_to_be(up: Served):
    for words in (("get", "nobody"), ("remove", "nobody"), ("set", "nobody", "enabled=false")):
        done = up("servers", *words, "--json")
        assert (done.code, done.json["error"]["code"]) == (1, "not_found")


def test_a_write_on_an_older_revision_is_refused(up: Served):
    first = up.json("servers", "add", "cas", *DEMO)["revision"]
    second = up.json("servers", "disable", "cas", "--expected-revision", str(first))
    assert second["server"]["enabled"] is False
    for words in (("enable", "cas"), ("remove", "cas"), ("set", "cas", "enabled=true")):
        late = up("servers", *words, "--expected-revision", str(first), "--json")
        assert (late.code, late.json["error"]["code"]) == (1, "conflict")
    assert up.json("servers", "get", "cas")["enabled"] is False


# --- files


def test_files_are_applied_as_one_revision_and_tried_before(up: Served, tmp_path: Path):
    (tmp_path / "one.toml").write_text(toml("one"), encoding="utf-8")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "first.json").write_text('{"task_id": "first"}', encoding="utf-8")
    before = up.revision
    tried = up("servers", "apply", str(tmp_path), "--dry-run")
    assert tried.code == 0
    assert {"+ server one", "+ task first"} <= set(tried.out.splitlines())
    assert up.revision == before
    done = up.json("servers", "apply", str(tmp_path))
    assert done["revision"] == before + 1
    assert done["diff"]["text"] == tried.out.rstrip("\n")
    assert up.json("servers", "apply", str(tmp_path))["revision"] == before + 1


def test_what_is_printed_can_be_applied_and_changes_nothing(up: Served, tmp_path: Path):
    up("servers", "add", "same", "--env", "SECRET=value", *DEMO)
    before = up.revision
    text = up("servers", "get", "same").out
    (tmp_path / "same.toml").write_text(text, encoding="utf-8")
    assert '"***"' in text
    assert up.json("servers", "apply", str(tmp_path / "same.toml"))["revision"] == before
    own = [s for s in up.json("servers", "list")["servers"] if s["owner"] is None]
    listed = json.dumps({"store_id": "x", "revision": before, "servers": own})
    done = command("servers", "apply", "-", "--data-dir", str(up.data), given=listed)
    assert (done.code, done.out) == (0, "no change\n")
    assert up.revision == before


def test_a_task_that_was_printed_can_be_edited_and_applied(up: Served, tmp_path: Path):
    up("tasks", "add", "edited", "--server", "notes")
    path = tmp_path / "edited.toml"
    text = up("tasks", "get", "edited").out
    path.write_text(text + "read_only = true\n", encoding="utf-8")
    assert up("tasks", "apply", str(path)).code == 0
    assert up.json("tasks", "get", "edited")["mcp"]["read_only"] is True


def test_problems_of_many_files_name_the_file_and_nothing_is_written(up: Served, tmp_path: Path):
    (tmp_path / "a.toml").write_text(toml("a"), encoding="utf-8")
    (tmp_path / "b.toml").write_text(toml("b", tags=["x y"]), encoding="utf-8")
    many = {"servers": [{"server_id": "c", "transport": "stdio"}], "tasks": [{"task_id": 3}]}
    (tmp_path / "many.json").write_text(json.dumps(many), encoding="utf-8")
    before = up.revision
    done = up("servers", "apply", str(tmp_path))
    assert (done.code, done.out) == (1, "")
    told = done.err.splitlines()
    assert any(line.startswith("error: b.toml: tags[0]: ") for line in told)
    assert any(line.startswith("error: many.json servers[0]: ") for line in told)
    assert any(line.startswith("error: many.json tasks[0]: task_id: ") for line in told)
    (tmp_path / "broken.toml").write_text("a = ", encoding="utf-8")
    unreadable = up("servers", "apply", str(tmp_path / "broken.toml"), "nowhere.toml")
    assert "error: broken.toml: is not valid TOML" in unreadable.err
    assert "error: nowhere.toml: cannot be read" in unreadable.err
    assert up.revision == before


def test_one_record_is_applied_only_if_nobody_was_faster(up: Served, tmp_path: Path):
    path = tmp_path / "slow.toml"
    path.write_text(toml("slow"), encoding="utf-8")
    first = up.json("servers", "apply", str(path), "--expected-revision", "0")["revision"]
    late = up("servers", "apply", str(path), "--expected-revision", "0", "--json")
    assert (late.code, late.json["error"]["code"]) == (1, "conflict")
    path.write_text(toml("slow", tags=["x"]), encoding="utf-8")
    done = up.json("servers", "apply", str(path), "--expected-revision", str(first))
    assert done["server"]["tags"] == ["x"]


def test_a_clients_file_is_taken_in_with_or_without_tools(up: Served, tmp_path: Path):
    config = {
        "mcpServers": {
            "Web Search": {"command": "npx", "args": ["search"], "env": {"KEY": "${KEY}"}},
            "docs": {"url": "https://docs.example.com/mcp"},
        }
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    before = up.revision
    preview = up("servers", "import", str(path), "--preview")
    assert "+ server web-search" in preview.out
    assert "no tool is allowed yet" in preview.err
    assert up.revision == before
    done = up("servers", "import", str(path), "--allow", "search_*")
    assert (done.code, "no tool is allowed" in done.err) == (0, False)
    taken = up.json("servers", "get", "web-search")
    assert taken["allowed_tools"] == ["search_*"]
    assert taken["stdio"]["env"] == {"KEY": "${ENV:KEY}"}
    wrong = up("servers", "apply", str(path))
    assert "bascule servers import" in wrong.err


def test_a_clients_file_may_have_what_editors_write(up: Served, tmp_path: Path):
    path = tmp_path / "mcp.json"
    path.write_text(EDITED, encoding="utf-8")
    done = up("servers", "import", str(path), "--allow", "ask_*")
    assert done.code == 0, done.err
    taken = up.json("servers", "get", "perplexity")
    assert taken["stdio"]["env"] == {"API_KEY": "${ENV:KEY}"}
    assert taken["stdio"]["args"] == ["https://example.com/a,]", "// no comment"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mcpServers": {', "odd.json: is not valid JSON: "),
        ("[]", "odd.json: must be a table of fields"),
        ('{"colour": 1}', "there is nothing to import: expected mcpServers (Claude, Cursor)"),
    ],
)
def test_a_file_that_is_no_clients_is_refused_in_plain_words(
    up: Served, tmp_path: Path, text: str, said: str
):
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    done = up("servers", "import", str(path))
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert done.err.startswith(f"error: {said}")


# --- the node


def test_the_node_tries_a_server_and_shows_its_tools_and_state(up: Served):
    well = up("servers", "test", "notes")
    assert (well.code, well.err) == (0, "")
    assert "read_note" in well.out
    taken = [line.split()[0] for line in well.out.splitlines() if line.startswith("  ")]
    assert taken == ["resolve", "start", "handshake", "list"]
    up("servers", "add", "dies", "--", sys.executable, "-c", "raise SystemExit('no luck')")
    said = up("servers", "test", "dies")
    assert (said.code, said.out) == (1, "")
    assert re.search(r"  handshake +[0-9.]+ ms  failed\n  stderr: no luck\nfailed after", said.err)
    ill = up("servers", "test", "dies", "--json")
    assert (ill.code, ill.json["ok"]) == (1, False)
    verdicts = {
        tool["tool"]: tool["allowed"] for tool in up.json("servers", "tools", "notes")["tools"]
    }
    assert verdicts["read_note"] is True
    assert "mcp__notes__read_note" in up("servers", "tools", "notes").out
    assert all(s["enabled"] in {True, False} for s in up.json("servers", "status")["servers"])
    states = {s["server_id"]: s["status"] for s in up.json("servers", "status")["servers"]}
    assert "local" in states["notes"]["nodes"]
    table, _, _ = up("servers", "status", "notes").out.partition("\n\n")  # then what a start does
    [row] = table.splitlines()[1:]
    assert row.split()[0] == "notes"


# --- the past


def test_the_past_is_listed_compared_and_brought_back(up: Served):
    before = up.revision
    up("servers", "add", "brief", "--allow", "*", *DEMO)
    up("servers", "remove", "brief")
    newest, older = up.json("servers", "history", "--limit", "2")["changes"]
    assert newest["deletes"] == older["upserts"] == [{"kind": "server", "id": "brief"}]
    assert "-server/brief" in up("servers", "history", "--limit", "1").out
    both = up("servers", "diff", str(before), str(before + 1))
    assert "+ server brief" in both.out
    assert up("servers", "diff", str(before)).out == "no change\n"
    words = ("servers", "rollback", str(before + 1), "--note", "missed it")
    back = up.json(*words, "--only", "server/brief")
    assert back["revision"] == before + 3
    assert up.json("servers", "history", "--limit", "1")["changes"][0]["note"] == "missed it"
    ahead = up("servers", "diff", "999999", "--json")
    assert (ahead.code, ahead.json["error"]["code"]) == (1, "future_revision")


# --- files that own records


def test_a_record_of_a_file_is_left_alone_until_it_is_adopted(up: Served):
    owned = up("servers", "disable", "owned")
    assert owned.code == 1
    assert "bascule servers adopt owned" in owned.err
    adopted = up.json("servers", "adopt", "owned")
    assert adopted["server"]["owner"] is None
    assert up.json("servers", "disable", "owned")["server"]["enabled"] is False


def _rescanned(up: Served) -> bool:
    """Try a rescan and do it; say whether that loaded what was missing, and nothing else did."""
    # Gone from the registry and still in its file: nothing but a load brings it back.
    up("servers", "adopt", "again")
    up("servers", "remove", "again")
    before = up.revision
    tried = up("rescan", "--dry-run")
    left = up.revision, ids(up.json("servers", "list"))
    done = up.json("rescan")
    if not done["changed"]:
        return False
    assert (tried.code, tried.out.splitlines()[0]) == (0, "+ server again")
    assert left == (before, set())
    assert done["revision"] == before + 1
    return True


@pytest.mark.requirement("loading:reload:command", "loading:dry-run")
def test_a_rescan_is_tried_and_then_done(tmp_path: Path):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "again.toml").write_text(toml("again"), encoding="utf-8")
    with served(tmp_path / "data", "--empty", "--registry-dir", str(folder)) as up:
        # The process looks at its files every 30 s: on a busy machine that may come first.
        rounds = (_rescanned(up) for _ in range(3))
        assert any(rounds), "nothing was ever loaded by the command"
        assert ids(up.json("servers", "list")) == {"again"}
        assert up("rescan").out == "no change\n"
        (folder / "broken.toml").write_text("server_id = 3", encoding="utf-8")
        broken = up("rescan", "--dry-run")
        assert broken.code == 1
        assert "left out: broken.toml" in broken.err
        assert up("rescan", "--json").json["problems"] == broken_problems(broken.err)


def broken_problems(said: str) -> list[str]:
    return [line.removeprefix("left out: ") for line in said.splitlines() if "left out" in line]


# --- the other kinds


@pytest.mark.requirement("cli:tasks-profiles")
def test_tasks_are_managed(up: Served):
    words = ("--server", "notes", "--may-use", "docs", "--deny-tool", "delete_*", "--read-only")
    more = ("--allow-tool", "read_*", "--profile", "p", "--server-tag", "t", "--name", "N")
    added = up.json("tasks", "add", "job", *words, *more, "--description", "D")["task"]
    assert added["mcp"] == {
        "enabled": True,
        "default_server_ids": ["notes"],
        "allowed_server_ids": ["notes", "docs"],
        "server_tags": ["t"],
        "tool_allowlist": ["read_*"],
        "tool_denylist": ["delete_*"],
        "read_only": True,
        "profile": "p",
    }
    assert (added["name"], added["description"]) == ("N", "D")
    assert "+read_* -delete_* read-only" in up("tasks", "list").out
    up("tasks", "set", "job", "mcp.profile=null", "mcp.read_only=false")
    policy = up.json("tasks", "get", "job")["mcp"]
    assert "profile" not in policy
    assert not policy.get("read_only")
    assert up("tasks", "remove", "job").code == 0
    assert "job" not in ids(up.json("tasks", "list"), "tasks", "task_id")
    bare = up.json("tasks", "add", "bare", "--disabled")["task"]
    assert bare["mcp"] == {"enabled": False}


@pytest.mark.requirement("cli:tasks-profiles")
def test_profiles_are_managed(up: Served, tmp_path: Path):
    path = tmp_path / "support.toml"
    text = (
        'name = "support"\ndefault_server_ids = ["notes"]\n[environments.prod]\nread_only = true\n'
    )
    path.write_text(text, encoding="utf-8")
    assert up("profiles", "apply", str(path)).code == 0
    assert up.json("profiles", "get", "support")["environments"] == {"prod": {"read_only": True}}
    changed = up.json("profiles", "set", "support", 'tool_denylist=["delete_*"]')
    assert changed["profile"]["tool_denylist"] == ["delete_*"]
    [_, row] = up("profiles", "list").out.splitlines()
    assert row.split()[:2] == ["support", "notes"]
    assert up("profiles", "remove", "support").code == 0
    assert up("profiles", "list").out == "no profiles\n"


@pytest.mark.requirement("cli:tasks-profiles")
def test_a_profile_is_added_from_the_words_of_a_command_line(up: Served):
    words = ("--server", "notes", "--may-use", "docs", "--deny-tool", "delete_*", "--read-only")
    added = up.json("profiles", "add", "desk", *words, "--description", "D")["profile"]
    assert added["default_server_ids"] == ["notes"]
    assert added["allowed_server_ids"] == ["notes", "docs"]
    assert (added["tool_denylist"], added["read_only"]) == (["delete_*"], True)
    assert "tool_allowlist" not in added
    assert added["description"] == "D"
    up("profiles", "set", "desk", "environments.prod.tool_allowlist=[]")
    assert up.json("profiles", "get", "desk")["environments"] == {"prod": {"tool_allowlist": []}}
    assert up("profiles", "add", "desk").code == 1
    assert up("profiles", "remove", "desk").code == 0


def test_backends_are_managed(up: Served):
    words = ("--base-url", "https://models.example.com/v1", "--key-ref", "${ENV:KEY}")
    more = ("--model", "small", "--header", "X-A=${ENV:A}")
    added = up.json("backends", "add", "main", *words, *more)["backend"]
    assert (added["models"], added["key_ref"]) == (["small"], "${ENV:KEY}")
    assert "https://models.example.com/v1" in up("backends", "list").out
    assert up.json("backends", "set", "main", "enabled=false")["backend"]["enabled"] is False
    assert up("backends", "remove", "main").code == 0


def test_the_words_of_a_record_cannot_deceive_a_terminal(up: Served):
    escape, override = "\x1b[2J", "\u202e"
    words = ("--display-name", f"{escape}{override}", "--", f"a{escape}", override)
    up("servers", "add", "sly", *words)
    for shown in (up("servers", "list").out, up("servers", "get", "sly").out):
        assert escape not in shown
        assert override not in shown
    up("servers", "remove", "sly")


@pytest.mark.requirement("people:cli")
def test_people_are_managed(up: Served):
    words = ("--display-name", "Zoe", "--group", "g", "--server", "s", "--allow", "read_*")
    added = up.json("users", "add", "zoe@x.example", *words, "--deny", "d_*", "--read-only")["user"]
    assert (added["display_name"], added["groups"]) == ("Zoe", ["g"])
    assert (added["enabled_server_ids"], added["tool_allowlist"]) == (["s"], ["read_*"])
    assert (added["tool_denylist"], added["read_only"]) == (["d_*"], True)
    listed = up("users", "list").out
    assert "zoe@x.example" in listed
    assert "+read_* -d_*" in listed
    assert up.json("users", "disable", "zoe@x.example")["user"]["enabled"] is False
    assert up.json("users", "enable", "zoe@x.example")["user"]["enabled"] is True
    up("users", "set", "zoe@x.example", "tool_allowlist=[]", "groups=null")
    assert up.json("users", "get", "zoe@x.example")["tool_allowlist"] == []
    assert up("users", "add", "zoe@x.example").code == 1
    assert up("users", "add", "no such id").code == 1
    assert up("users", "who", "nowhere/tool").code == 1
    removed = up("users", "remove", "zoe@x.example")
    [back] = [line for line in removed.err.splitlines() if "rollback" in line]
    words = shlex.split(back.partition("servers rollback")[2])
    assert up("servers", "rollback", *words).code == 0
    assert up("users", "remove", "zoe@x.example").code == 0
