"""What fetches a server and starts nothing of it."""

from __future__ import annotations

import pytest

from bascule.model.fetch_line import fetch_line

NODE = ("--", "node", "-e", "")
INTO = "/tmp/x"


@pytest.mark.parametrize(
    ("line", "program", "words"),
    [
        ("uvx mcp-server-time", "uv", "mcp-server-time"),
        ("uvx mcp-server-time@1.2 --help", "uv", "mcp-server-time==1.2"),
        ("uvx a[x]@latest", "uv", "a[x]"),
        ("/opt/bin/uvx --from a==1 a --port 1", "/opt/bin/uv", "a==1"),
        ("uvx --from=a b", "uv", "a"),
        ("uvx --with x,y -p 3.12 --isolated a -p 80", "uv", "-p 3.12 x y a"),
        (
            "uvx --with-editable ./e --from git+https://h/r a",
            "uv",
            "--editable ./e git+https://h/r",
        ),
        ("uvx -q a", "uv", "-q a"),
        ("uvx --extra-index" + "-url https://h a", "uv", "--extra-index" + "-url https://h a"),
        ("uv tool run a", "uv", "a"),
        ("env A=1 uvx a", "env A=1 uv", "a"),
    ],
)
def test_python_packages_are_unpacked_and_nothing_of_them_runs(line: str, program: str, words: str):
    found = fetch_line(line.split(), INTO)
    assert found is not None
    install = ("pip", "install", "--no-build", "--target", INTO)
    assert (found.kind, found.argv) == ("uvx", (*program.split(), *install, *words.split()))


@pytest.mark.parametrize(
    ("line", "fetching"),
    [
        ("npx -y @a/b /srv", "npx --ignore-scripts --yes -y --package @a/b"),
        ("npx @a/b@1", "npx --ignore-scripts --yes --package @a/b@1"),
        ("npx -p a -p b c", "npx --ignore-scripts --yes -p a -p b"),
        ("npx -y -- a --port 1", "npx --ignore-scripts --yes -y --package a"),
        ("npm exec --package=a -- b", "npm exec --ignore-scripts --yes --package a"),
    ],
)
def test_node_packages_are_unpacked_and_no_script_of_them_runs(line: str, fetching: str):
    found = fetch_line(line.split(), INTO)
    assert found is not None
    assert (found.kind, found.argv) == ("npx", (*fetching.split(), *NODE))


def test_a_record_that_allows_builds_lets_packages_be_built():
    for line in ("uvx a", "npx a"):
        found = fetch_line(line.split(), INTO, build=True)
        assert found is not None
        assert {"--no-build", "--ignore-scripts"}.isdisjoint(found.argv)


@pytest.mark.parametrize(
    "line",
    [
        "uvx",
        "npx",
        "npx -y",
        "npx -c code",
        "npx --call code a",
        "npm start",
        "uv run a.py",
        "cat a",
        "",
    ],
)
def test_what_is_no_fetch_has_no_line(line: str):
    assert fetch_line(line.split(), INTO) is None
