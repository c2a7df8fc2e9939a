"""Scanning a directory of records: which files count, who wins, what is reported."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from bascule.errors import InvalidRecord
from bascule.files import scan_directory, scan_file
from bascule.files.scan import parse_text
from tests.wire.full_records import SEED_RECORD


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def record(server_id: str, **fields: object) -> str:
    base = {"server_id": server_id, "transport": "stdio", "stdio": {"command": "true"}}
    return json.dumps(base | fields)


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_toml", ".toml").replace(
            "_json", ".json"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


@pytest.mark.requirement("files:one-record-per-file", "files:version")
def test_the_record_of_seed_000_is_read_as_written(tmp_path: Path) -> None:
    scan = scan_directory(write(tmp_path, fs_toml=SEED_RECORD))
    server = scan.snapshot().servers["fs"]
    assert server.stdio is not None
    assert (server.stdio.command, server.stdio.args) == ("uvx", ("xxx@latest",))
    assert server.allowed_tools == ("read_*", "search_*")
    assert server.budgets.max_concurrency == 8
    assert not scan.warnings
    assert not scan.broken


@pytest.mark.requirement("files:suffixes")
def test_toml_and_json_are_read_and_everything_else_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, a_toml=SEED_RECORD, b_json=record("b"))
    for name in ("notes.txt", "c.yaml", "README.md", "d.toml.bak"):
        (tmp_path / name).write_text("not a record", encoding="utf-8")
    assert set(scan_directory(tmp_path).snapshot().servers) == {"fs", "b"}


@pytest.mark.requirement("files:hidden", "files:temporary")
@pytest.mark.parametrize(
    "name", [".hidden.toml", "x~.toml", "#x.toml", "~x.json", ".x.toml.swp", "x.toml~"]
)
def test_hidden_and_temporary_files_are_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("not = [a record", encoding="utf-8")
    scan = scan_directory(tmp_path)
    assert not scan.snapshot().servers
    assert not scan.broken


@pytest.mark.requirement("files:non-recursive", "files:profiles", "files:tasks")
def test_folders_are_not_searched_except_those_of_the_other_kinds(tmp_path: Path) -> None:
    write(
        tmp_path,
        nested__b_json=record("b"),
        tasks__t_json='{"task_id": "t", "mcp": {"enabled": true}}',
        profiles__p_toml='name = "review"\ndefault_server_ids = ["fs"]',
        backends__m_toml='name = "local"\nbase_url = "http://127.0.0.1:8000/v1"',
        platform_toml='tool_denylist = ["delete_*"]',
    )
    snapshot = scan_directory(tmp_path).snapshot()
    assert not snapshot.servers
    assert snapshot.tasks["t"].mcp.enabled
    assert snapshot.profiles["review"].default_server_ids == ("fs",)
    assert snapshot.platform.tool_denylist == ("delete_*",)
    assert snapshot.backends["local"].base_url == "http://127.0.0.1:8000/v1"


@pytest.mark.requirement("files:links-outside")
def test_a_link_out_of_the_directory_is_not_followed_and_said_so(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(record("evil"), encoding="utf-8")
    inside = folder(tmp_path, "mcp.d")
    (inside / "evil.json").symlink_to(outside)
    scan = scan_directory(inside)
    assert not scan.snapshot().servers
    assert scan.warnings == ["evil.json: is a link out of the directory and was not followed"]


@pytest.mark.requirement("files:links-asked-for")
def test_a_link_out_of_the_directory_is_followed_when_that_is_asked_for(tmp_path: Path) -> None:
    outside = folder(tmp_path, "outside")
    (outside / "x.json").write_text(record("asked"), encoding="utf-8")
    (outside / "t.json").write_text('{"task_id": "far"}', encoding="utf-8")
    inside = folder(tmp_path, "mcp.d")
    (inside / "x.json").symlink_to(outside / "x.json")
    (inside / "tasks").symlink_to(outside)
    (inside / "nowhere.json").symlink_to(outside / "nothing.json")
    scan = scan_directory(inside, follow_links=True)
    assert set(scan.snapshot().servers) == {"asked"}
    assert "far" in scan.snapshot().tasks


@pytest.mark.requirement("files:links-outside")
def test_a_link_that_leads_out_by_way_of_a_link_inside_is_not_followed(tmp_path: Path) -> None:
    outside = folder(tmp_path, "outside")
    (outside / "evil.json").write_text(record("evil"), encoding="utf-8")
    inside = folder(tmp_path, "mcp.d")
    (inside / "..data").symlink_to(outside)
    (inside / "evil.json").symlink_to("..data/evil.json")
    scan = scan_directory(inside)
    assert not scan.snapshot().servers
    assert scan.warnings == ["evil.json: is a link out of the directory and was not followed"]


def test_a_folder_that_is_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    outside = folder(tmp_path, "outside")
    (outside / "t.json").write_text('{"task_id": "evil"}', encoding="utf-8")
    inside = folder(tmp_path, "mcp.d")
    (inside / "tasks").symlink_to(outside)
    scan = scan_directory(inside)
    assert not scan.snapshot().tasks
    assert scan.warnings == ["tasks: is a link out of the directory and was not followed"]


@pytest.mark.requirement("files:links-inside")
def test_a_config_map_mount_of_kubernetes_works(tmp_path: Path) -> None:
    data = tmp_path / "..2026_11_15"
    data.mkdir()
    (data / "fs.toml").write_text(SEED_RECORD, encoding="utf-8")
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "fs.toml").symlink_to("..data/fs.toml")
    scan = scan_directory(tmp_path)
    assert set(scan.snapshot().servers) == {"fs"}
    assert not scan.warnings


@pytest.mark.requirement("files:duplicate-id")
def test_the_lexicographically_last_of_two_files_wins_with_a_warning_that_names_both(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        a_json=record("fs", display_name="first"),
        b_json=record("fs", display_name="last"),
    )
    scan = scan_directory(tmp_path)
    assert scan.snapshot().servers["fs"].display_name == "last"
    assert scan.warnings == ["server 'fs' is defined by a.json and by b.json; b.json counts"]


@pytest.mark.requirement("files:duplicate-id:strict")
def test_strict_refuses_two_files_for_one_server(tmp_path: Path) -> None:
    write(tmp_path, a_json=record("fs"), b_json=record("fs"))
    with pytest.raises(InvalidRecord, match=r"a\.json and by b\.json"):
        scan_directory(tmp_path, strict=True).refuse_broken()


@pytest.mark.requirement("files:broken-file:reported", "files:broken-file:hides-nothing")
def test_a_broken_file_is_reported_with_its_line_and_hides_no_other(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_toml='server_id = "a"\ntransport = [',
        b_json=record("b"),
        c_json='{"x": 1,\n"x": 2}',
    )
    scan = scan_directory(tmp_path)
    assert set(scan.snapshot().servers) == {"b"}
    by_source = {broken.source: str(broken) for broken in scan.broken}
    assert "line 2" in by_source["a.toml"]
    assert "line 2" in by_source["c.json"]
    assert "duplicate" in by_source["c.json"].lower()


def test_an_invalid_record_is_reported_with_every_problem(tmp_path: Path) -> None:
    write(tmp_path, a_json=record("fs", budgets={"max_concurrency": 0, "tool_timeout_ms": "x"}))
    [broken] = scan_directory(tmp_path).broken
    assert broken.problems == (
        "budgets.tool_timeout_ms: must be a whole number, not a string",
        "budgets.max_concurrency: must be at least 1",
    )


@pytest.mark.requirement("files:unknown-fields")
def test_a_record_with_an_unknown_field_is_left_out_and_no_other(tmp_path: Path) -> None:
    write(tmp_path, a_json=record("fs", allowed_tool=["x"]), b_json=record("git"))
    scan = scan_directory(tmp_path)
    assert [str(broken) for broken in scan.broken] == [
        "a.json: allowed_tool: unknown field; did you mean 'allowed_tools'?"
    ]
    assert set(scan.snapshot().servers) == {"git"}


@pytest.mark.requirement("files:env-from")
def test_env_from_passes_variables_through_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_json=record("fs", stdio={"command": "x", "env_from": ["API_TOKEN"], "env": {"A": "1"}}),
    )
    stdio = scan_directory(tmp_path).snapshot().servers["fs"].stdio
    assert stdio is not None
    assert stdio.environment() == {"API_TOKEN": "${ENV:API_TOKEN}", "A": "1"}


@pytest.mark.requirement("files:env-from:explicit-wins")
def test_an_explicit_value_stands_against_env_from(tmp_path: Path) -> None:
    stdio = {"command": "x", "env_from": ["A"], "env": {"A": "1"}}
    write(tmp_path, a_json=record("fs", stdio=stdio))
    loaded = scan_directory(tmp_path).snapshot().servers["fs"].stdio
    assert loaded is not None
    assert loaded.environment() == {"A": "1"}


@pytest.mark.requirement("files:strict:validation")
def test_strict_loads_nothing_when_one_record_is_invalid(tmp_path: Path) -> None:
    write(tmp_path, a_json=record("a"), b_json=record("b", sharing="maybe"))
    with pytest.raises(InvalidRecord, match=r"b\.json: sharing: 'maybe' is not one of"):
        scan_directory(tmp_path, strict=True).refuse_broken()


def test_another_version_of_the_format_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a_json=record("fs", version=2))
    [broken] = scan_directory(tmp_path).broken
    assert broken.problems == ("version: 2 is not one of: 1",)


@pytest.mark.requirement("files:many-records")
def test_one_file_may_hold_many_records_of_every_kind(tmp_path: Path) -> None:
    text = """\
[[servers]]
server_id = "a"
transport = "stdio"
stdio = { command = "true" }

[[servers]]
server_id = "B"
transport = "stdio"

[[tasks]]
task_id = "t"

[platform]
tool_denylist = ["x"]
"""
    path = tmp_path / "all.toml"
    path.write_text(text, encoding="utf-8")
    scan = scan_file(path)
    snapshot = scan.snapshot()
    assert set(snapshot.servers) == {"a"}
    assert set(snapshot.tasks) == {"t"}
    assert snapshot.platform.tool_denylist == ("x",)
    assert [broken.source for broken in scan.broken] == ["all.toml servers[1]"]


def test_two_servers_may_not_share_a_tool_namespace(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_json=record("a", tool_namespace="mcp.x"),
        b_json=record("b", tool_namespace="mcp.X"),
    )
    scan = scan_directory(tmp_path)
    assert set(scan.snapshot().servers) == {"a"}
    assert "already the namespace of server 'a'" in str(scan.broken[0])


@pytest.mark.requirement("record:own-name")
def test_no_server_may_be_called_as_bascule_itself_is(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_json=record("bascule"),
        b_json=record("b", tool_namespace="bascule"),
        c_json=record("c", tool_namespace="BASCULE.tools"),
        d_json=record("bascule-2", tool_namespace="mcp.bascule"),
        e_json=record("e", tool_namespace="bascules"),
    )
    scan = scan_directory(tmp_path)
    assert set(scan.snapshot().servers) == {"bascule-2", "e"}
    said = [str(broken) for broken in scan.broken]
    assert "server_id: 'bascule' is the name of Bascule itself" in said[0]
    assert "tool_namespace: 'bascule' is where Bascule's own tools are" in said[1]
    assert "tool_namespace: 'BASCULE.tools' is" in said[2]


def test_a_missing_directory_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecord, match="no such directory"):
        scan_directory(tmp_path / "nowhere")


def test_a_directory_that_goes_away_while_it_is_read_never_seems_empty(tmp_path: Path) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    for number in range(20):
        text = f'server_id = "s{number}"\ntransport = "stdio"\n[stdio]\ncommand = "c"'
        (here / f"s{number}.toml").write_text(text, encoding="utf-8")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            here.rename(away)
            away.rename(here)

    moving = threading.Thread(target=come_and_go)
    moving.start()
    try:
        for _ in range(100):
            try:
                scan = scan_directory(here)
            except (InvalidRecord, OSError):
                continue
            whole = len(scan.records["server"]) + len(scan.broken)
            assert whole == 20
    finally:
        done.set()
        moving.join(5)


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    write(tmp_path, a_json="[" + " " * (4 * 1024 * 1024))
    [broken] = scan_directory(tmp_path).broken
    assert "larger than" in str(broken)


@pytest.mark.requirement("files:examples")
def test_the_shipped_examples_are_clean_even_when_strict() -> None:
    examples = Path(__file__).parents[2] / "examples" / "mcp.d"
    scan = scan_directory(examples, strict=True)
    assert set(scan.snapshot().servers) == {"fs", "gitlab"}
    assert not scan.broken


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    (tmp_path / "fs.toml").write_text(SEED_RECORD, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.toml")
    scan = scan_directory(tmp_path)
    assert list(scan.records["server"]) == ["fs"]
    assert [str(broken) for broken in scan.broken] == ["pipe.toml: is no regular file"]


def test_people_are_read_from_their_folder_and_from_a_file_of_many(tmp_path: Path):
    folder = tmp_path / "users"
    folder.mkdir()
    (folder / "alice.toml").write_text('user_id = "alice"\ngroups = ["g"]\n', encoding="utf-8")
    many = '[[users]]\nuser_id = "bob@x.example"\ntool_allowlist = []\n'
    (tmp_path / "all.toml").write_text(many, encoding="utf-8")
    users = scan_directory(tmp_path).snapshot().users
    assert {name: (one.groups, one.tool_allowlist) for name, one in users.items()} == {
        "alice": (("g",), None),
        "bob@x.example": ((), ()),
    }


@pytest.mark.parametrize(
    "text",
    [
        '[[servers]]\nserver_id = "a"',
        '# mine\n[[servers]]\nserver_id = "a"',
        '// mine\n{"servers": [{"server_id": "a"},]}',
    ],
)
def test_a_text_without_a_name_is_read_as_what_it_is(text: str):
    assert parse_text(text.encode(), "a text", relaxed=True) == {"servers": [{"server_id": "a"}]}
