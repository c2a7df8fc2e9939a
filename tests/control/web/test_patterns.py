"""The page reads patterns over tool names, and command lines, as the rest of Bascule does."""

from __future__ import annotations

import json
import shlex
import subprocess
from itertools import product
from typing import Any

from bascule.model.pattern import Pattern
from checks import npm
from checks.web import WEB

PATTERNS = ("*", "a", "a*", "*a", "a*b*c", "a?c", "fs/a*", "other/*", "fs/a/b", "**a", "?", "a**")
TOOLS = ("a", "abc", "ab", "aXbYc", "a/b", "", "ca", "A", "a\nc", "a\U0001f600c", "aaaa")
LINES = (
    "uvx mcp-server-time --zone 'Europe/Zurich'",
    'npx -y "@scope/server files" /tmp/a\\ b "say \\"hi\\"" \'\'',
    "docker run \\\n  -i --rm image:1",
)


def of_the_page(module: str, script: str, given: Any) -> Any:
    """Run a script with a module of the page; what it returns is the answer."""
    source = (
        f"import * as page from {json.dumps((WEB / 'src' / module).as_uri())};"
        f"const given = {json.dumps(given)};"
        f"console.log(JSON.stringify((() => {{ {script} }})()));"
    )
    words = [npm.NODE, "--experimental-strip-types", "--no-warnings", "--input-type=module"]
    done = subprocess.run(
        [*words, "-e", source], capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_pattern_covers_the_same_tools_on_the_page():
    pairs = list(product(PATTERNS, TOOLS))
    script = "return given.map(([pattern, tool]) => page.covers(pattern, 'fs', tool));"
    found = of_the_page("state/patterns.ts", script, pairs)
    assert found == [Pattern.parse(pattern).matches("fs", tool) for pattern, tool in pairs]


def test_the_pattern_for_one_tool_covers_no_other():
    names = ["plain", "a/b", "*", "what?", "back\\slash", "two words", "\u202e", "x" * 300]
    script = "return given.map((tool) => page.exactly('fs', tool));"
    found = of_the_page("state/patterns.ts", script, names)
    assert found == ["plain", "fs/a/b", *[None] * 6]
    for name, pattern in zip(names, found, strict=True):
        if pattern is not None:
            assert [one for one in names if Pattern.parse(pattern).matches("fs", one)] == [name]


def test_a_command_line_is_taken_apart_as_a_shell_does():
    script = "return given.map((line) => page.split(line));"
    assert of_the_page("screens/servers/pasted.ts", script, LINES) == [
        shlex.split(line.replace("\\\n", " ")) for line in LINES
    ]
