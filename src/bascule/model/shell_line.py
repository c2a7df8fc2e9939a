"""The programs that a command line names behind its first: of a wrapper, or of a plain shell line.

Only what is written out is found. What a shell would have to work out is left to it: a name that
depends on a variable, on a substitution or on a pattern is nobody's to guess.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile

from bascule.model.launcher import program_name

_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh", "ash"})
#: Words before a program that have it started, here or there.
_BEFORE = frozenset({"exec", "command", "env", "nice", "nohup", "time", "setsid", "stdbuf"})
_SCRIPT_OPTION = re.compile(r"-[a-zA-Z]*c")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_QUOTED = re.compile(r"""^(['"])(.*)\1$""")
_PLAIN = re.compile(r"[\w@%+=:,./ -]+")
#: What changes how the rest is read, wherever it stands.
_NOT_PLAIN = ("`", "$(", "${", "<<", "\\", "\n")
_OPERATORS = ";&|()<>"


def inner_programs(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the programs that a command line starts besides its first, as they are written."""
    if not argv:
        return ()
    name = program_name(argv[0])
    if name in _BEFORE:
        return _started(argv)
    script = _script(argv) if name in _SHELLS else None
    if script is None or any(sign in script for sign in _NOT_PLAIN):
        return ()
    found = [program for words in _commands(script) for program in _started(words)]
    return tuple(dict.fromkeys(found))


def _script(argv: Sequence[str]) -> str | None:
    """Return the line that a shell is given, behind its options."""
    options = list(takewhile(lambda word: word.startswith("-"), argv[1:]))
    if not options or not _SCRIPT_OPTION.fullmatch(options[-1]) or len(argv) <= len(options) + 1:
        return None
    return argv[len(options) + 1]


def _commands(script: str) -> Iterator[list[str]]:
    """Return the words of each command of a line, without the files that it reads and writes."""
    lexer = shlex.shlex(script, punctuation_chars=_OPERATORS)  # quotes stay: "&&" is no operator
    lexer.commenters, lexer.whitespace_split = "", True
    words: list[str] = []
    after_arrow = False
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that is not closed
        return
    for token in tokens:
        operator = set(token) <= set(_OPERATORS)
        arrow = operator and bool(set(token) & set("<>"))
        if operator and not arrow:
            yield words
            words = []
        elif not operator and not after_arrow:
            words.append(token)
        after_arrow = arrow
    yield words


def _started(words: Sequence[str]) -> tuple[str, ...]:
    """Return the program of one command, if it is written out."""
    at, wrapped = 0, False
    while at < len(words):
        word = words[at]
        before = program_name(word) in _BEFORE
        if not (before or _ASSIGNMENT.match(word) or (wrapped and word.startswith("-"))):
            break
        wrapped = wrapped or before
        at += 1
    named = _QUOTED.sub(r"\2", words[at]) if at < len(words) else ""
    return (named,) if _PLAIN.fullmatch(named) and not named.startswith("-") else ()
