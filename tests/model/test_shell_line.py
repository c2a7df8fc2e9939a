"""The programs that a command line names behind its first one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.shell_line import inner_programs

LINES = {
    "one": (["sh", "-c", "/srv/bin/tool --flag"], ["/srv/bin/tool"]),
    "exec": (["/bin/bash", "-c", "exec tool"], ["tool"]),
    "options": (["bash", "-e", "-lc", "tool", "name", "arg"], ["tool"]),
    "several": (["sh", "-c", "cd /srv && A=1 first | second; third &"], ["cd", "first", "second",
                                                                        "third"]),
    "quoted": (["sh", "-c", "'/srv/my tools/run' \"a && b\""], ["/srv/my tools/run"]),
    "files": (["sh", "-c", "tool <in.txt 2>/dev/null >> out; other"], ["tool", "other"]),
    "a variable among the arguments": (["sh", "-c", "tool --token $TOKEN"], ["tool"]),
    "a variable as the program": (["sh", "-c", "$TOOL --flag"], []),
    "a variable in its path": (["sh", "-c", "/srv/$NAME/tool"], []),
    "a substitution": (["sh", "-c", "$(which tool) run"], []),
    "a substitution of old": (["sh", "-c", "`which tool` run"], []),
    "a pattern": (["sh", "-c", "/srv/*/tool"], []),
    "a home": (["sh", "-c", "~/bin/tool"], []),
    "a document": (["sh", "-c", "tool <<END\nother\nEND"], []),
    "a quote that is open": (["sh", "-c", "tool 'x"], []),
    "no line": (["sh", "-c"], []),
    "a file of commands": (["sh", "script.sh"], []),
    "no shell": (["python", "-c", "tool"], []),
    "nothing": ([], []),
    "a wrapper": (["/usr/bin/env", "-i", "A=1", "/srv/bin/tool", "x"], ["/srv/bin/tool"]),
    "a wrapper in a line": (["sh", "-c", "exec env A=1 nice tool"], ["tool"]),
}  # fmt: skip


@pytest.mark.requirement("process:sandbox:inner-programs")
@pytest.mark.parametrize(("argv", "programs"), LINES.values(), ids=LINES)
def test_what_is_written_out_is_found_and_what_a_shell_works_out_is_not(
    argv: list[str], programs: list[str]
):
    assert list(inner_programs(argv)) == programs


@given(st.text())
def test_of_any_line_only_plain_words_of_it_are_found(line: str):
    for program in inner_programs(["sh", "-c", line]):
        assert program in line
        assert not set(program) & set("$`*?[]~\\'\"<>|&;(){}\n")
