"""``bascule doctor``: what it finds, and how it says to mend it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bascule.cli.doctor import diagnose
from bascule.model.server import ServerRecord
from bascule.server import Server
from bascule.testing import MALFORMED_TOOLS, ScriptedServer, do, tool
from tests.cli.served import command, served
from tests.waits import blocked_until

PYTHON = sys.executable
DEMO = {"command": PYTHON, "args": ["-m", "bascule.demo.server"]}


def add(registry: Path, server_id: str, stdio: dict[str, Any], **fields: Any) -> None:
    registry.mkdir(exist_ok=True)
    record = {
        "server_id": server_id,
        "transport": "stdio",
        "allowed_tools": ["*"],
        "stdio": stdio,
        **fields,
    }
    (registry / f"{server_id}.json").write_text(json.dumps(record), encoding="utf-8")


def doctor(registry: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = command("doctor", "--registry-dir", str(registry), *words)
    return subprocess.CompletedProcess(words, done.code, done.out, done.err)


NO_STORE = "there is no secret named 'a': this node has no secret store"


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where nearly everything is wrong."""
    ward = tmp_path_factory.mktemp("ward") / "mcp.d"
    patterns = ["read_notes", "list_*"]
    add(ward, "notes", DEMO, allowed_tools=patterns, budgets={"connect_timeout_ms": 9000})
    add(ward, "missing", {"command": "uvx", "args": ["x"], "env": {"PATH": "/nowhere"}})
    add(ward, "unset", {"command": PYTHON, "env_from": ["DOCTOR_TEST_UNSET"]})
    crash = "import sys; print('\\x1b[31mno config file', file=sys.stderr); sys.exit(3)"
    add(ward, "crash", {"command": PYTHON, "args": ["-c", crash]})
    silent = ScriptedServer(on={"server/discover": "never", "initialize": "never"})
    add(ward, "silent", silent.stdio, budgets={"connect_timeout_ms": 900})
    unlisted = ScriptedServer(on={"tools/list": "never"}, era="legacy")
    add(ward, "unlisted", unlisted.stdio, budgets={"list_timeout_ms": 300})
    odd = ScriptedServer(tools=[tool("echo"), MALFORMED_TOOLS["no_schema"]], era="legacy")
    add(ward, "odd", odd.stdio)
    add(ward, "off", {"command": PYTHON, "args": ["${API_TOKEN}"]}, enabled=False)
    add(ward, "lost", DEMO | {"cwd": "/no/such/folder"})
    (ward / "torn.toml").write_text("server_id = 1", encoding="utf-8")
    return ward


@pytest.fixture(scope="module")
def found(ward: Path) -> dict[str, dict[str, Any]]:
    done = doctor(ward, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    return {checkup["server_id"]: checkup for checkup in report["servers"]}


@pytest.mark.requirement("cli:doctor")
def test_a_healthy_server_is_timed_and_described(found: dict[str, dict[str, Any]]) -> None:
    notes = found["notes"]
    assert notes["verdict"] == "ok"
    assert notes["connect_ms"] > 0
    assert notes["list_ms"] >= 0
    assert (notes["protocol_version"], notes["era"]) == ("2026-07-28", "modern")
    assert (notes["server_name"], notes["server_version"]) == ("bascule-notes", "1.0.0")
    assert (notes["tools"], notes["allowed"]) == (6, 1)


def test_an_older_server_is_said_to_be_of_its_era(found: dict[str, dict[str, Any]]) -> None:
    assert (found["odd"]["protocol_version"], found["odd"]["era"]) == ("2025-11-25", "legacy")


def test_a_pattern_that_matches_nothing_is_a_warning_with_near_names(
    found: dict[str, dict[str, Any]],
) -> None:
    [warning] = found["notes"]["warnings"]
    assert warning.startswith("allowed_tools: 'read_notes' matches no tool")
    assert "near: read_note" in warning


def test_a_tool_that_cannot_be_used_is_shown_as_quarantined(
    found: dict[str, dict[str, Any]],
) -> None:
    assert (found["odd"]["verdict"], found["odd"]["tools"]) == ("ok", 1)
    assert "no_schema" in found["odd"]["quarantined"][0]


@pytest.mark.requirement("cli:doctor")
@pytest.mark.parametrize(
    ("server", "reason", "problem", "mend"),
    [
        ("missing", "unavailable", "PATH searched is '/nowhere'", "uvx comes with uv"),
        ("unset", "env_missing", "DOCTOR_TEST_UNSET", "export DOCTOR_TEST_UNSET="),
        ("silent", "unavailable", "no connection within 0.9 s", "connect_timeout_ms (now 900)"),
        ("unlisted", "list_timeout", "no tool list in time", "list_timeout_ms (now 300)"),
        ("crash", "unavailable", "the server", "run it by hand"),
        ("lost", "unavailable", "/no/such/folder", "stdio.cwd"),
    ],
)
def test_each_failure_says_what_is_wrong_and_how_to_mend_it(
    found: dict[str, dict[str, Any]], server: str, reason: str, problem: str, mend: str
) -> None:
    checkup = found[server]
    assert (checkup["verdict"], checkup["reason"]) == ("failed", reason)
    assert problem in checkup["problem"]
    assert mend in checkup["mend"]


def test_a_server_that_exits_leaves_its_last_words(found: dict[str, dict[str, Any]]) -> None:
    assert "no config file" in found["crash"]["last_lines"][-1]


def test_a_disabled_server_is_left_alone_and_its_record_read(
    found: dict[str, dict[str, Any]],
) -> None:
    assert found["off"]["verdict"] == "disabled"
    assert "looks like a credential" in found["off"]["warnings"][0]


def test_a_record_that_cannot_be_read_is_reported(found: dict[str, dict[str, Any]]) -> None:
    assert found["torn.toml"]["verdict"] == "broken"
    assert "server_id" in found["torn.toml"]["problem"]


@pytest.mark.requirement("cli:doctor")
def test_people_get_a_table_and_remarks_without_tricks(ward: Path) -> None:
    done = doctor(ward)
    assert done.returncode == 1
    assert done.stdout.startswith("server ")
    assert "mend:    export DOCTOR_TEST_UNSET=" in done.stdout
    assert "said: \\x1b[31mno config file" in done.stdout
    assert "\x1b" not in done.stdout


def test_warnings_alone_do_not_fail(ward: Path) -> None:
    done = doctor(ward, "--server", "notes", "--server", "off")
    assert done.returncode == 0
    assert "missing" not in done.stdout
    assert "warning: allowed_tools" in done.stdout


def test_servers_are_looked_at_side_by_side(tmp_path: Path) -> None:
    """Each of the two waits for the other to have started."""
    first, second = tmp_path / "first", tmp_path / "second"
    one = ScriptedServer(starts=first, at_start=[do("gate", path=str(second))])
    other = ScriptedServer(starts=second, at_start=[do("gate", path=str(first))])
    add(tmp_path / "mcp.d", "one", one.stdio)
    add(tmp_path / "mcp.d", "other", other.stdio)
    assert doctor(tmp_path / "mcp.d").returncode == 0


def test_an_empty_directory_and_an_unknown_server_are_said_plainly(ward: Path) -> None:
    empty = ward.parent / "empty"
    empty.mkdir()
    nothing = doctor(empty)
    assert (nothing.returncode, "no server record" in nothing.stderr) == (1, True)
    unknown = doctor(ward, "--server", "nobody")
    assert (unknown.returncode, "no server 'nobody'" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("reason", "message", "mend"),
    [
        ("launch_denied", "this node does not start /bin/x; add ...", "names the setting"),
        ("env_missing", "stdio.env.A: file:///a cannot be read", "provide what"),
        ("env_missing", "stdio.env.A: there is no secret named 'a'", "secrets set a --bind x"),
        ("env_missing", f"A: {NO_STORE}", "bascule servers test x"),
        ("secret_unbound", "A: the secret 'a' is not bound to …", "secrets bind a --server x"),
        ("unavailable", "permission denied: '/bin/x' is not executable", "chmod +x"),
        ("unavailable", "command not found: '/bin/x', or the interpreter", "install it"),
    ],
)
def test_rarer_failures_have_advice_too(reason: str, message: str, mend: str) -> None:
    record: ServerRecord = Server.stdio("x", "/bin/x")
    checkup = diagnose(record, reason, message)
    assert checkup.problem == message
    assert mend in (checkup.mend or "")


@pytest.mark.requirement("transport:executables:contained")
def test_a_bare_launcher_in_the_list_of_executables_is_warned_about(tmp_path: Path):
    add(tmp_path / "mcp.d", "notes", DEMO)
    config = tmp_path / "bascule.toml"
    listed = f'"uvx", "npx", "{PYTHON}"'
    config.write_text(f"[node]\nexecutables = [{listed}]\nvariables = []\n", encoding="utf-8")
    done = doctor(tmp_path / "mcp.d", "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert "'uvx' admits any package" in done.stderr
    assert "'uvx mcp-server-time *'" in done.stderr
    assert "'npx' admits any package" in done.stderr
    assert "so records may read no file" in done.stderr
    config.write_text('[node]\nexecutables = ["uvx mcp-server-time *"]\n', encoding="utf-8")
    done = doctor(tmp_path / "mcp.d", "--config", str(config), "--json")
    report = json.loads(done.stdout)
    assert report["servers"][0]["reason"] == "launch_denied"
    assert not any("admits any package" in warning for warning in report["warnings"])


def test_a_key_of_the_secrets_that_others_may_read_is_warned_about(tmp_path: Path):
    add(tmp_path / "mcp.d", "off", DEMO, enabled=False)
    key = tmp_path / "secrets.key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    config = tmp_path / "bascule.toml"
    config.write_text(f"data_dir = {json.dumps(str(tmp_path))}", encoding="utf-8")
    found = doctor(tmp_path / "mcp.d", "--config", str(config), "--json")
    assert f"{key}: others may read it; run chmod 600 {key}" in json.loads(found.stdout)["warnings"]
    key.chmod(0o600)
    found = doctor(tmp_path / "mcp.d", "--config", str(config), "--json")
    assert str(key) not in found.stdout


@pytest.mark.requirement("cli:doctor")
def test_the_process_its_disk_and_its_ledger_are_looked_at_without_a_token(tmp_path: Path):
    with served(tmp_path / "data", "--empty") as site:
        (site.data / "setup-token").unlink()
        well = site("doctor")
        assert (well.code, f"serves at {site.url}" in well.out) == (0, True)
        assert "the anchors are beside the ledger, so only accidents are found" in well.err
        told = site("doctor", "--json").json
        assert (told["ok"], told["url"], told["problems"]) == (True, site.url, [])
        blocked_until(lambda: site("doctor", "--json").json["ledger"]["rows"])
        elsewhere = str(tmp_path / "anchors")
        away = command("doctor", "--data-dir", str(site.data), BASCULE_LEDGER_ANCHOR_FILE=elsewhere)
        assert "only accidents" not in away.err
    alone = command("doctor", "--data-dir", str(tmp_path / "data"))
    assert (alone.code, " up --data-dir " in alone.out) == (1, True)


@pytest.mark.requirement("cli:doctor")
def test_a_data_directory_that_is_not_there_is_not_made(tmp_path: Path):
    done = command("doctor", "--data-dir", str(tmp_path / "none"))
    assert (done.code, "does not exist" in done.err) == (1, True)
    assert not (tmp_path / "none").exists()
    assert command("doctor", "--server", "a").code == 2


@pytest.mark.requirement("cli:doctor")
def test_a_ledger_that_is_not_anchored_or_no_ledger_is_named(tmp_path: Path):
    data = tmp_path / "data"
    assert command("tokens", "create", "--role", "viewer", "--data-dir", str(data)).code == 0
    with closing(sqlite3.connect(data / "ledger.db")) as connection, connection:
        connection.execute("UPDATE events SET timestamp = timestamp - 3600")
    late = command("doctor", "--data-dir", str(data))
    assert "1 rows of the ledger have no anchor yet" in late.err
    (data / "ledger.db").write_bytes(b"not a database, but long enough to be read as one" * 20)
    foreign = command("doctor", "--data-dir", str(data))
    assert (foreign.code, "problem: " in foreign.out, "ledger.db" in foreign.out) == (1, True, True)
