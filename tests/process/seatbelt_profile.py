"""A reader of sandbox profiles, and a program in the place of ``sandbox-exec`` where there is none.

The program keeps a profile's rules about files by Landlock. It shows that a server can live with
what a profile grants; how macOS reads the same profile it cannot show.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from bascule.node.pool.process import places
from bascule.node.pool.process.confinement import landlock
from bascule.node.pool.process.confinement.kernel import gain_no_privileges

Rule: TypeAlias = list[Any]


def read_profile(text: str) -> list[Rule]:
    """Return the expressions of a profile; strings are kept apart from words as tuples."""
    found: list[Rule] = []
    open_lists: list[Rule] = [found]
    words = _words(text)
    for word in words:
        if word == "(":
            inner: Rule = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif word == ")":
            open_lists.pop()
        else:
            open_lists[-1].append(word)
    assert open_lists == [found], "a parenthesis is missing"
    return found


def _words(text: str) -> Iterator[str | tuple[str]]:
    at = 0
    while at < len(text):
        if text[at] in "()":
            yield text[at]
            at += 1
        elif text[at] == '"':
            string, at = _string(text, at + 1)
            yield (string,)
        elif text[at].isspace():
            at += 1
        else:
            end = at
            while end < len(text) and text[end] not in '()"' and not text[end].isspace():
                end += 1
            yield text[at:end]
            at = end


def _string(text: str, at: int) -> tuple[str, int]:
    found = ""
    while text[at] != '"':
        at += text[at] == "\\"
        found += text[at]
        at += 1
    return found, at + 1


def filters(rule: Rule, kind: str) -> list[str]:
    """Return what a rule is about, of one kind: subpath, literal, global-name."""
    return [each[1][0] for each in rule if isinstance(each, list) and each[0] == kind]


def operations(rule: Rule) -> list[str]:
    return [each for each in rule[1:] if isinstance(each, str)]


def allowed(profile: list[Rule], operation: str, path: str) -> bool:
    """Say what a profile says of one path: the last rule that matches decides."""
    verdict = False
    for rule in profile:
        if rule[0] in ("allow", "deny") and operation in operations(rule):
            below = any(
                path == each or path.startswith(each + "/") for each in filters(rule, "subpath")
            )
            if below or path in filters(rule, "literal"):
                verdict = rule[0] == "allow"
    return verdict


def _granted(profile: list[Rule], operation: str) -> list[str]:
    """Return what Landlock is to grant, which has no rule that takes back: entry by entry."""
    about = [rule for rule in profile if operation in operations(rule)]
    named: dict[str, list[str]] = {"allow": [], "deny": []}
    for rule in about:
        named[rule[0]] += filters(rule, "subpath")
    closed = [path for path in named["deny"] if not allowed(profile, operation, path)]
    open_paths = [path for path in named["allow"] if path != "/dev/fd"]  # here a link into /proc
    open_paths = [path for path in open_paths if allowed(profile, operation, path)]
    own = [path for path in open_paths if any(places.within(path, each) for each in closed)]
    wide = [path for path in open_paths if path not in own and Path(path).exists()]
    return [*own, *(each for path in wide for each in places.around(path, closed))]


def main() -> None:
    option, text, *argv = sys.argv[1:]
    assert option == "-p"
    profile = read_profile(text)
    read, write = (_granted(profile, each) for each in ("file-read*", "file-write*"))
    gain_no_privileges()
    devices = [f"/dev/{name}" for name in ("null", "zero", "urandom")]
    landlock.restrict(read, write, devices, network="full")
    os.execv(argv[0], argv)  # noqa: S606 - what it was told to start


if __name__ == "__main__":
    main()
