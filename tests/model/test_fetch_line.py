"""What fetches a server and starts nothing of it."""

from __future__ import annotations

import pytest

from bascule.model.fetch_line import constrained, fetch_line

NODE = ("--script-shell", "/bin/sh", "--", ":")
COMPILE = ("pip", "compile", "--no-header", "--no-annotate", "--generate-hashes", "--no-build")


@pytest.mark.parametrize(
    ("line", "program", "options", "packages"),
    [
        ("uvx mcp-server-time", "uv", "", ["mcp-server-time"]),
        ("uvx mcp-server-time@1.2 --help", "uv", "", ["mcp-server-time==1.2"]),
        ("uvx a[x]@latest", "uv", "", ["a[x]"]),
        ("/opt/bin/uvx --from a==1 a --port 1", "/opt/bin/uv", "", ["a==1"]),
        ("uvx --from=a>1,<2 b", "uv", "", ["a>1,<2"]),
        ("uvx --with x,y>1,<3 -p 3.12 --isolated a -p 80", "uv", "-p 3.12", ["x", "y>1,<3", "a"]),
        ("uvx -w x a", "uv", "", ["x", "a"]),
        (
            "uvx --with-editable ./e --from git+https://h/r a",
            "uv",
            "",
            ["-e ./e", "git+https://h/r"],
        ),
        ("uvx -q a", "uv", "-q", ["a"]),
        ("uvx --no-binary-package b a", "uv", "--no-binary b", ["a"]),
        (
            "uvx --extra-index" + "-url https://h a",
            "uv",
            "--extra-index" + "-url https://h",
            ["a"],
        ),
        ("uv tool run a", "uv", "", ["a"]),
        ("env A=1 uvx a", "env A=1 uv", "", ["a"]),
    ],
)
def test_python_packages_are_resolved_and_unpacked_and_nothing_of_them_runs(
    line: str, program: str, options: str, packages: list[str]
):
    found = fetch_line(line.split())
    assert found is not None
    assert (found.kind, found.packages) == ("uvx", tuple(packages))
    start, given = program.split(), options.split()
    resolving = (*start, *COMPILE, *given, "-o", "out", "in")
    assert found.resolving("in", "out") == resolving
    install = ("pip", "install", "--no-build", "--require-hashes", "--target", "there")
    installing = found.installing(["held"], "there", "--require-hashes")
    assert installing == (*start, *install, *given, "-r", "held")


def test_files_of_requirements_are_resolved_with_the_rest():
    found = fetch_line(["uvx", "--with-requirements", "r.txt", "--reinstall", "a"])
    assert found is not None
    assert found.resolving("in", "out") == ("uv", *COMPILE, "-o", "out", "in", "r.txt")


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
    found = fetch_line(line.split())
    assert found is not None
    assert (found.kind, found.unpacking()) == ("npx", (*fetching.split(), *NODE))


def test_a_record_that_allows_builds_lets_packages_be_built():
    python, node = (fetch_line(line.split(), build=True) for line in ("uvx a", "npx a"))
    assert python is not None
    assert node is not None
    words = (*python.resolving("in", "out"), *python.installing(["held"], "x"), *node.unpacking())
    assert {"--no-build", "--ignore-scripts"}.isdisjoint(words)


@pytest.mark.parametrize(
    ("line", "exact"),
    [
        ("uvx a", False),
        ("uvx a@1.2", True),
        ("uvx a==1.2", True),
        ("uvx a>=1.2", False),
        ("uvx --with b a==1", False),
        ("uvx --with-requirements r.txt a==1", False),
        ("npx a", False),
        ("npx a@1", False),
        ("npx a@latest", False),
        ("npx @s/a@1.2.3-rc.1 x", True),
        ("npx -p a@1.2.3 -p b c", False),
    ],
)
def test_a_line_is_exact_if_it_names_one_version_of_each_package(line: str, exact: bool):
    found = fetch_line(line.split())
    assert found is not None
    assert found.exact is exact


def test_a_line_is_the_same_wherever_the_launcher_lies_and_whatever_the_server_is_told():
    lines = ("uvx a", "/opt/uvx a --port 1", "env A=1 uvx a", "uv tool run a")
    found = [fetch_line(line.split(), build=build) for line in lines for build in (False, True)]
    assert len({one.words for one in found if one is not None}) == 1
    other = fetch_line(["uvx", "a@1"])
    assert other is not None
    assert other.words not in {one.words for one in found if one is not None}


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("uvx a b", "uvx --constraints f a b"),
        ("env A=1 uv tool run a", "env A=1 uv tool run --constraints f a"),
        ("npx a", "npx a"),
        ("cat a", "cat a"),
    ],
)
def test_uvx_is_held_to_the_versions_of_a_file(line: str, held: str):
    assert constrained(line.split(), "f") == tuple(held.split())


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
    assert fetch_line(line.split()) is None
