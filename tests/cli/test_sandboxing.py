"""New servers and their sandbox: what is written, what is offered, and a trial inside."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bascule.cli.process_checkup import isolation_warnings
from bascule.model.sandbox import BEST_FIRST
from bascule.testing import ScriptedServer
from tests.cli.served import Done, Served, command, served
from tests.cli.terminal import Terminal

DEMO = ("--", sys.executable, "-m", "bascule.demo.server")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up"), "--empty") as up:
        yield up


@pytest.fixture
def needed() -> Iterator[Path]:
    """A file that any user may read: as root, limits are those of a user of the server's own."""
    with tempfile.TemporaryDirectory(prefix="needed-") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "file"
        file.write_text("x", encoding="ascii")
        yield file


def reader(path: Path) -> list[str]:
    """A server that needs a file to start, as many need their database."""
    program, args = ScriptedServer().command
    script = f"import os, sys; open({str(path)!r}).close(); os.execv(sys.argv[1], sys.argv[1:])"
    return ["--", program, "-c", script, program, *args]


def status_of(up: Served, server: str) -> Any:
    return up.json("servers", "status", server)["servers"][0]["status"]


def sandbox_of(up: Served, server: str) -> Any:
    return up.json("servers", "get", server)["sandbox"]


@pytest.mark.requirement("record:sandbox:new")
def test_a_new_server_says_its_sharing_and_its_sandbox(up: Served):
    added = up("servers", "add", "plain", "--allow", "*", *DEMO)
    assert added.code == 0, added.err
    found = up.json("servers", "get", "plain")
    assert (found["sharing"], found["sandbox"]) == ("task", {})  # every field at its default
    shown = up("servers", "get", "plain").out
    assert "[sandbox]" in shown
    remote = ("servers", "add", "far", "--url", "https://mcp.example.com/mcp")
    far = up.json(*remote, "--sharing", "shared")["server"]
    assert not {"sandbox", "sharing"} & set(far)


@pytest.mark.requirement("record:sandbox:new")
def test_what_a_command_line_says_of_a_sandbox_is_written(up: Served):
    words = ("--no-trial", "--sandbox", "no-access", "--write", "/srv/out", "--read", "/srv/in")
    assert up("servers", "add", "words", *words, *DEMO).code == 0
    assert sandbox_of(up, "words") == {
        "required": True,
        "network": "none",
        "read": ["/srv/in"],
        "write": ["/srv/out"],
    }
    hosts = ("--no-trial", "--host", "api.example.org:443", "--host", "example.org")
    assert up("servers", "add", "hosts", *hosts, *DEMO).code == 0
    assert sandbox_of(up, "hosts") == {
        "network": "egress",
        "hosts": ["api.example.org:443", "example.org"],
    }
    assert up("servers", "set", "hosts", "sandbox=limits").code == 0
    assert sandbox_of(up, "hosts") == {"level": "limits"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sandbox", "jail", *DEMO), "files-only"),
        (("--read", "data", "--no-trial", *DEMO), "sandbox.read[0]"),
        (("--network", "none", "--host", "a.example", "--no-trial", *DEMO), "sandbox.hosts"),
        (("--sandbox", "limits", "--network", "none", *DEMO), "sandbox.network"),
        (("--write", "/srv", "--url", "https://a.example/mcp"), "go with a command"),
    ],
    ids=["word", "path", "hosts", "network", "remote"],
)
def test_a_sandbox_that_cannot_be_is_refused_before_anything_is_written(
    up: Served, words: tuple[str, ...], said: str
):
    refused = up("servers", "add", "refused", *words)
    assert refused.code != 0
    assert said in refused.err
    assert up("servers", "get", "refused").code != 0


@pytest.mark.requirement("record:sandbox:trial")
def test_a_server_that_misses_something_inside_is_told_of_with_how_to_give_less(
    up: Served, needed: Path
):
    added = up("servers", "add", "misses", "--allow", "*", *reader(needed))
    assert added.code == 0, added.err
    assert "misses does not list its tools inside its sandbox" in added.err
    assert str(needed) in added.err  # as the server's own words say
    assert "with level limits it lists 1" in added.err
    assert "servers set misses sandbox=limits" in added.err
    granted = up("servers", "add", "granted", "--read", str(needed), *reader(needed))
    assert "inside its sandbox" not in granted.err
    assert up.json("servers", "test", "granted")["ok"]


@pytest.mark.requirement("record:sandbox:missed")
def test_what_a_server_missed_is_named_with_what_grants_it(up: Served, needed: Path):
    added = up("servers", "add", "needs", "--allow", "*", *reader(needed))
    option = f"it could not read {needed}: --read {needed} (sandbox.read) grants it"
    assert option in added.err
    [line] = [line for line in added.err.splitlines() if line.startswith("to grant that: ")]
    assert f"""servers set needs 'sandbox.read=["{needed}"]'""" in line
    tested = up("servers", "test", "needs")
    assert option in tested.err
    assert {"field": "read", "value": str(needed), "wanted": str(needed)} in json.loads(
        up("servers", "test", "needs", "--json").out
    )["missed"]
    words = shlex.split(line.removeprefix("to grant that: "))
    assert up(*words[words.index("servers") : words.index("--data-dir")]).code == 0
    assert up.json("servers", "test", "needs")["missed"] == []


@pytest.mark.requirement("record:sandbox:missed")
def test_a_server_that_needs_the_network_or_another_folder_is_told_so(up: Served, needed: Path):
    program, args = ScriptedServer().command
    become = "os.execv(sys.argv[1], sys.argv[1:])"
    needed.parent.chmod(0o777)
    scripts = {
        "calls": f"import os, sys, socket; socket.create_server(('127.0.0.1', 0)); {become}",
        "writes": f"import os, sys; open({str(needed.parent / 'new')!r}, 'w'); {become}",
    }
    said = {
        name: up(
            "servers", "add", name, "--network", "none", "--", program, "-c", script, program, *args
        ).err
        for name, script in scripts.items()
    }
    assert "it did not reach the network: --network full (sandbox.network) lets it" in said["calls"]
    assert "servers set calls sandbox.network=full" in said["calls"]
    assert f"--write {needed.parent} (sandbox.write) grants it" in said["writes"]


@pytest.mark.requirement("record:sandbox:missed")
def test_whoever_is_there_is_asked_to_grant_what_was_missed_and_it_is_tried_again(
    up: Served, needed: Path
):
    own = ("servers", "add", "asked-about", "--data-dir", str(up.data), *reader(needed))
    terminal = Terminal([sys.executable, "-m", "bascule", *own])
    terminal.until("grant it that, and try again? [y/N]")
    terminal.type("y")
    assert terminal.finish() == 0, terminal.shown
    assert "instead?" not in terminal.shown
    assert sandbox_of(up, "asked-about") == {"read": [str(needed)]}


@pytest.mark.requirement("record:sandbox:trial")
def test_a_server_that_does_not_start_at_all_is_written_as_it_is(up: Served):
    added = up("servers", "add", "broken", "--", "/bin/false")
    assert (added.code, "sandbox" in added.err) == (0, False)
    assert "broken does not list its tools: " in added.err


@pytest.mark.requirement("record:sandbox:trial", "process:fetch-runs-nothing")
def test_a_server_that_cannot_be_fetched_is_told_of_and_not_tried_without_its_sandbox(
    up: Served, tmp_path: Path
):
    for name in ("uv", "uvx"):
        (tmp_path / name).write_text("#!/bin/sh\necho no $0 >&2\nexit 1\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    added = up("servers", "add", "typo", "--", str(tmp_path / "uvx"), "no-such-server")
    assert added.code == 0
    assert (
        f"typo does not list its tools: uvx could not fetch the server: no {tmp_path}/uv"
        in added.err
    )
    assert f"{tmp_path}/uvx" not in added.err


@pytest.mark.requirement("record:sandbox:new")
def test_folders_that_arguments_name_are_offered_and_granted_where_somebody_says_yes(
    up: Served, tmp_path: Path
):
    argument = f"--root={tmp_path}"
    command = ("--no-trial", *DEMO, argument, "/no/such/folder")
    asked = up("servers", "add", "asked", *command)
    assert f"give --write {tmp_path}" in asked.err
    assert sandbox_of(up, "asked") == {}
    agreed = up("servers", "add", "agreed", "--yes", *command)
    assert f"granted, as its arguments name it: {tmp_path}" in agreed.err
    assert sandbox_of(up, "agreed") == {"write": [".", str(tmp_path)]}


@pytest.mark.requirement("record:sandbox:trial", "record:sandbox:new")
def test_an_import_tries_what_is_new_and_grants_what_is_agreed_to(
    up: Served, tmp_path: Path, needed: Path
):
    _, program, *args = reader(needed)
    folder = {"command": sys.executable, "args": ["-m", "bascule.demo.server", str(tmp_path)]}
    servers = {"imported": {"command": program, "args": args}, "foldered": folder}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    done: Done = up("servers", "import", str(file), "--yes")
    assert done.code == 0, done.err
    assert "imported does not list its tools inside its sandbox" in done.err
    assert sandbox_of(up, "foldered") == {"write": [".", str(tmp_path)]}
    again = up("servers", "import", str(file))
    assert (again.code, "inside its sandbox" in again.err) == (0, False)


@pytest.mark.requirement("record:sandbox:status")
def test_the_level_in_force_is_shown_with_the_one_that_was_asked_for(up: Served, tmp_path: Path):
    assert up("servers", "add", "level", "--allow", "*", *DEMO).code == 0
    assert up("servers", "test", "level").code == 0
    while (standing := status_of(up, "level")["sandbox"]) is None:
        pass  # the node tells of it now and then
    assert standing["asked"] == "best"
    assert standing["in_force"] in BEST_FIRST
    words = f"isolation {standing['in_force']} (asked for best)"
    assert f"level: {words}" in up("servers", "status", "level").out
    assert f"# {words}" in up("servers", "get", "level").out
    assert row_of(up, "level")["isolation"] == standing["in_force"]
    record = {"server_id": "here", "transport": "stdio", "allowed_tools": ["*"]}
    stdio = {"command": sys.executable, "args": ["-m", "bascule.demo.server"]}
    (tmp_path / "here.json").write_text(
        json.dumps({**record, "stdio": stdio, "sandbox": {"level": "limits"}}), encoding="utf-8"
    )
    done = command("doctor", "--registry-dir", str(tmp_path), "--json")
    [found] = json.loads(done.out)["servers"]
    assert (found["sandbox"]["asked"], found["sandbox"]["in_force"]) == ("limits", "limits")
    assert "isolation limits" in command("doctor", "--registry-dir", str(tmp_path)).out


def row_of(up: Served, server: str) -> dict[str, str]:
    """Return what the list of servers says in the columns before where one is."""
    head, *rows = (line.split() for line in up("servers", "list").out.splitlines())
    [row] = [row for row in rows if row[0] == server]
    return dict(zip(head, row, strict=False))


@pytest.mark.requirement("record:sandbox:status")
def test_the_list_of_servers_has_the_isolation_in_force_and_names_those_without(up: Served):
    levels = {"bare": "none", "bounded": "limits"}
    for server, level in levels.items():
        added = up("servers", "add", server, "--sandbox", level, "--allow", "*", *DEMO)
        assert added.code == 0, added.err
        assert row_of(up, server)["isolation"] == "-"  # nothing runs yet
        assert up("servers", "test", server).code == 0
        while row_of(up, server)["state"] != "connected":
            pass  # the node tells of it now and then
        assert row_of(up, server)["isolation"] == level
    listed = {one["server_id"]: one for one in up.json("servers", "list")["servers"]}
    assert listed["bounded"]["status"]["sandbox"]["in_force"] == "limits"


@pytest.mark.requirement("record:sandbox:status")
def test_a_doctor_tries_every_level_and_names_the_best(up: Served):
    done = command("doctor", "--data-dir", str(up.data), "--json")
    levels = json.loads(done.out)["isolation"]
    assert list(levels) == list(BEST_FIRST)
    best = next(level for level, why in levels.items() if not why)
    assert f"sandbox  {best} is the best" in command("doctor", "--data-dir", str(up.data)).out


@pytest.mark.requirement("record:sandbox:status")
def test_where_only_limits_work_a_doctor_says_what_servers_can_read():
    found = dict.fromkeys(("bwrap", "namespaces", "landlock"), "no such kernel") | {"limits": ""}
    [warning] = isolation_warnings(found)
    assert "Bascule's keys" in warning
    assert "no such kernel" in warning
    assert list(isolation_warnings(found | {"landlock": ""})) == []
