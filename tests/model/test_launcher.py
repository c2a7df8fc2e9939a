"""Which commands fetch what they start, and how long a start may take."""

from __future__ import annotations

import pytest

from bascule.model.launcher import fetches, from_cache, start_timeout
from bascule.model.server import Budgets, ServerRecord, Stdio


def started(*words: str, **budgets: int) -> ServerRecord:
    stdio = Stdio(command=words[0], args=words[1:])
    return ServerRecord(server_id="s", transport="stdio", stdio=stdio, budgets=Budgets(**budgets))


@pytest.mark.requirement("pool:start-timeout")
@pytest.mark.parametrize(
    "words",
    [
        ("uvx", "mcp-server-time"),
        ("/opt/bin/uv", "tool", "run", "mcp-server-time"),
        ("npx", "-y", "package"),
        ("npx.cmd", "-y", "package"),
        ("pnpm", "dlx", "package"),
        ("bunx", "package"),
        ("deno", "run", "npm:package"),
        ("pipx", "run", "package"),
        ("docker", "run", "-i", "image"),
        ("env", "-u", "LOG=1", "uvx", "package"),
        ("python3", "-m", "uv", "tool", "run", "package"),
    ],
)
def test_a_launcher_that_fetches_has_two_minutes(words: tuple[str, ...]):
    assert start_timeout(started(*words)) == 120.0


@pytest.mark.parametrize(
    "words", [("python3", "-m", "server"), ("node", "npx"), ("/srv/uvx-like",), ("env", "A=1")]
)
def test_any_other_command_has_the_connect_limit(words: tuple[str, ...]):
    record = started(*words)
    assert record.stdio is not None
    assert not fetches(record.stdio)
    assert start_timeout(record) == 15.0
    assert start_timeout(started(*words, connect_timeout_ms=4000)) == 4.0


def test_the_records_own_start_limit_counts_for_every_command():
    assert start_timeout(started("uvx", "package", start_timeout_ms=30_000)) == 30.0
    assert start_timeout(started("python3", "server.py", start_timeout_ms=60_000)) == 60.0


def test_a_launcher_keeps_a_connect_limit_that_is_longer():
    assert start_timeout(started("uvx", "package", connect_timeout_ms=600_000)) == 600.0


@pytest.mark.requirement("process:home:offline")
@pytest.mark.parametrize(
    ("line", "offline"),
    [
        ("/bin/uvx time --utc", "/bin/uvx --offline time --utc"),
        ("uv tool run time", "uv --offline tool run time"),
        ("npm.cmd exec package", "npm.cmd --offline exec package"),
        ("env LOG=1 npx -y package", "env LOG=1 npx --offline -y package"),
        ("cmd /c npx -y package", "cmd /c npx --offline -y package"),
        ("python3 -m uv tool run time", "python3 -m uv --offline tool run time"),
        ("bunx package", None),
        ("python3 -m pipx run package", None),
        ("python3 server.py uvx", None),
        ("env LOG=1", None),
    ],
)
def test_what_was_fetched_is_started_without_the_network_however_it_is_wrapped(
    line: str, offline: str | None
):
    found = from_cache(line.split())
    assert (None if found is None else " ".join(found)) == offline
