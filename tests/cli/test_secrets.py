"""``bascule secrets``: on the files of a data directory, without ever printing a value."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from bascule.control.envelope import new_key
from bascule.control.secrets import Secrets
from bascule.model.json import JsonObject
from bascule.model.snapshot import Snapshot
from bascule.policy.edits import lifting
from bascule.policy.known_values import spellings
from bascule.server import Server
from tests.cli.served import FOUND_BY, Done, Served, command, served
from tests.control.keeping_secrets import VALUE
from tests.waits import DEADLINE_SECONDS

DEMO = (sys.executable, "-m", "bascule.demo.server")


def run(data: Path, *words: str, given: str = "", **env: str) -> Done:
    done = command("secrets", *words, "--data-dir", str(data), given=given, **env)
    for form in (VALUE, *spellings(VALUE)):
        assert form not in done.out + done.err
    return done


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A process that serves; each test has secrets of its own there."""
    with served(tmp_path_factory.mktemp("data"), "--empty") as serving:
        yield serving


@pytest.mark.requirement("cli:secrets")
def test_a_secret_is_set_from_standard_input_listed_and_removed(tmp_path: Path):
    done = run(tmp_path, "set", "token", given=f"{VALUE}\n")
    assert (done.code, done.out) == (0, "")
    assert "set token, version 1" in done.err
    assert "secrets bind token --server ID" in done.err
    assert Secrets.open(tmp_path).get("token") == VALUE
    [listed] = run(tmp_path, "list", "--json").json["secrets"]
    assert (listed["name"], listed["version"], listed["bound"]) == ("token", 1, [])
    assert run(tmp_path, "list").out.split()[:2] == ["name", "version"]
    again = run(tmp_path, "set", "token", "--json", given="another-value")
    assert again.json["version"] == 2
    assert run(tmp_path, "remove", "token").code == 0
    assert run(tmp_path, "list").out == "there is no secret\n"


@pytest.mark.requirement("cli:secrets")
def test_a_secret_is_typed_at_a_prompt_without_an_echo(tmp_path: Path):
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "bascule", "secrets", "set", "token"]
    clean = {name: text for name, text in os.environ.items() if name not in FOUND_BY}
    with subprocess.Popen(
        [*words, "--data-dir", str(tmp_path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean,
        start_new_session=True,
    ) as typing:
        os.close(theirs)
        try:
            said = _read_until(ours, b"value of token: ")
            os.write(ours, b"typed-in-secret\n")
            said += _read_until(ours, b"version 1")
            assert typing.wait(DEADLINE_SECONDS) == 0
        finally:
            typing.kill()
            os.close(ours)
    assert b"typed-in" not in said
    assert Secrets.open(tmp_path).get("token") == "typed-in-secret"


def _read_until(terminal: int, words: bytes) -> bytes:
    said = b""
    while words not in said:
        assert select.select([terminal], [], [], DEADLINE_SECONDS)[0], said
        said += os.read(terminal, 4096)
    return said


@pytest.mark.parametrize(
    "words", [("set", "token", "hunter2-secret"), ("set", "token", "--value=hunter2-secret")]
)
def test_a_value_is_no_argument_and_is_not_repeated(tmp_path: Path, words: tuple[str, ...]):
    done = run(tmp_path, *words)
    assert done.code == 2
    assert "standard input" in done.err
    assert "hunter2" not in done.out + done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["", "\n", "x" * 65_537, "a\0b", f"{VALUE}\0"])
def test_an_unfit_value_is_refused_and_not_repeated(tmp_path: Path, given: str):
    done = run(tmp_path, "set", "token", "--json", given=given)
    assert (done.code, done.json["error"]["code"]) == (1, "invalid_record")
    assert done.json["error"]["message"].startswith("value: ")
    assert run(tmp_path, "list", "--json").json == {"secrets": []}


def test_standard_input_that_is_no_text_is_refused(tmp_path: Path):
    words = [sys.executable, "-m", "bascule", "secrets", "set", "token"]
    done = subprocess.run(
        [*words, "--data-dir", str(tmp_path)],
        input=b"secretive \xff\xfe",
        capture_output=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 1
    assert b"value: must be UTF-8" in done.stderr
    assert b"secretive" not in done.stdout + done.stderr


def test_a_bad_name_is_refused_before_a_value_is_asked_for(tmp_path: Path):
    done = run(tmp_path, "set", "a b", given=VALUE)
    assert (done.code, "name: must be" in done.err) == (1, True)


@pytest.mark.parametrize(
    "words",
    [("remove", "none"), ("bind", "none", "--server", "s"), ("unbind", "none", "--server", "s")],
)
def test_an_unknown_secret_or_server_fails_by_name(tmp_path: Path, words: tuple[str, ...]):
    done = run(tmp_path, *words, "--json")
    assert done.code == 1
    assert "there is no" in done.json["error"]["message"]


def test_bind_needs_one_of_a_server_and_a_backend(tmp_path: Path):
    assert run(tmp_path, "bind", "token").code == 2
    assert run(tmp_path, "bind", "token", "--server", "a", "--backend", "b").code == 2


# --- beside a process that serves


def test_a_secret_is_bound_to_the_record_that_a_running_process_has(site: Served):
    url = "https://a.example.com/mcp"
    site.json("servers", "add", "github", "--url", url, "--auth-ref", "secret://gh")
    assert run(site.data, "set", "gh", "--bind", "github", given=VALUE).code == 0
    every = run(site.data, "list", "--json").json["secrets"]
    [listed] = [one for one in every if one["name"] == "gh"]
    assert [(b["id"], b["state"]) for b in listed["bound"]] == [("github", "bound")]
    assert listed["used_by"] == [{"kind": "server", "id": "github"}]
    site.json("servers", "set", "github", "http.url=https://b.example.com/mcp")
    stale = run(site.data, "list")
    assert "github (changed)" in stale.out
    assert "secrets bind gh --server github" in stale.err
    assert run(site.data, "bind", "gh", "--server", "github").code == 0
    assert "(changed)" not in run(site.data, "list").out
    assert run(site.data, "unbind", "gh", "--server", "github").code == 0
    assert run(site.data, "unbind", "gh", "--server", "github").code == 1


def test_a_server_that_is_not_in_the_registry_cannot_be_bound_to(site: Served):
    done = run(site.data, "set", "other", "--bind", "none", given=VALUE)
    assert (done.code, "--bind: there is no server 'none'" in done.err) == (1, True)
    names = [one["name"] for one in run(site.data, "list", "--json").json["secrets"]]
    assert "other" not in names


# --- keys


def test_the_key_is_changed_and_everything_still_opens(tmp_path: Path):
    run(tmp_path, "set", "token", given=VALUE)
    before = (tmp_path / "secrets.key").read_bytes()
    assert run(tmp_path, "rekey", "--json").json == {"rekeyed": 1}
    assert (tmp_path / "secrets.key").read_bytes() != before
    assert Secrets.open(tmp_path).get("token") == VALUE


def descriptor(content: bytes) -> str:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(content)
    return str(reading)


def test_a_key_is_given_by_a_descriptor_or_in_the_environment(tmp_path: Path):
    old, new = new_key(), new_key()
    fd = ("--secrets-key-fd", descriptor(old.raw))
    assert run(tmp_path, "set", "token", *fd, given=VALUE).code == 0
    assert not (tmp_path / "secrets.key").exists()
    held = {"BASCULE_SECRETS_KEY": old.raw.hex()}
    assert run(tmp_path, "list", **held).code == 0
    refused = run(tmp_path, "rekey", **held)
    assert (refused.code, "--new-key-fd" in refused.err) == (1, True)
    assert run(tmp_path, "rekey", "--new-key-fd", descriptor(new.raw), **held).code == 0
    assert run(tmp_path, "list", **held).code == 1
    assert Secrets.open(tmp_path, key=new).get("token") == VALUE


def test_without_its_key_a_command_fails_and_says_which_file(tmp_path: Path):
    run(tmp_path, "set", "token", given=VALUE)
    (tmp_path / "secrets.key").unlink()
    done = run(tmp_path, "list", "--json")
    assert done.code == 1
    assert str(tmp_path / "secrets.key") in done.json["error"]["message"]
    passphrase = run(tmp_path, "list", BASCULE_SECRETS_KEY="correct horse battery")
    assert (passphrase.code, "correct horse" in passphrase.err) == (1, False)


def test_what_a_command_does_is_in_the_ledger_of_the_directory(tmp_path: Path):
    run(tmp_path, "set", "token", given=VALUE)
    run(tmp_path, "remove", "token")
    written = b"".join(p.read_bytes() for p in tmp_path.glob("ledger.db*"))
    for action in ("set", "removed"):
        assert json.dumps(action).encode() in written
    assert not any(form.encode() in written for form in spellings(VALUE))


@pytest.mark.requirement("cli:secrets", "cli:next-command")
def test_who_waits_for_a_secret_is_told_how_it_is_given_until_it_is(site: Served):
    added = site("servers", "add", "waits", "--env", "KEY=secret://waited", "--", *DEMO)
    assert "secrets set waited --bind waits" in added.err
    done = run(site.data, "set", "waited", given=VALUE)
    assert "secrets bind waited --server waits" in done.err
    assert "notices it within about a second" in done.err
    allowed = site("servers", "allow", "waits", "list_*")
    assert "secrets bind waited --server waits" in allowed.err
    assert run(site.data, "bind", "waited", "--server", "waits").code == 0
    assert "secrets" not in site("servers", "allow", "waits", "read_*").err


@pytest.mark.requirement("cli:next-command")
@pytest.mark.parametrize(
    ("reason", "problem", "words"),
    [
        ("secret_unbound", "the secret 'a' is not bound to the server 's'", "bind a --server s"),
        ("env_missing", "there is no secret named 'a'", "set a --bind s"),
        ("env_missing", "the variable A is not set", ""),
    ],
)
def test_a_tool_that_lacks_a_secret_is_explained_with_the_command(
    reason: str, problem: str, words: str
):
    decision: JsonObject = {"server": "s", "reason": reason, "rule": problem}
    expected = f"secrets {words}" if words else ""
    assert (
        lifting(Snapshot(servers={"s": Server.stdio("s", "run-it")}), decision, "demo") == expected
    )
