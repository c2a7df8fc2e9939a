"""Patterns over tool names: ``*`` any run, ``?`` one character, whole name, case-sensitive.

A pattern may name its server as well (``gitlab/delete_*``); without one it holds for every server.
Matching never backtracks: each piece between stars is found once, left to right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_PATTERN_LENGTH = 256


def translate(glob: str, *, one: str = ".") -> str:
    """Return a glob as a regular expression, with an atomic group per inner piece (linear time).

    ``one`` is what ``?`` stands for.
    """
    pieces = [
        "".join(one if char == "?" else re.escape(char) for char in piece)
        for piece in re.sub(r"\*+", "*", glob).split("*")
    ]
    if len(pieces) == 1:
        return pieces[0]
    first, *inner, last = pieces
    found = "".join(f"(?>.*?{piece})" for piece in inner)
    return f"{first}{found}.*{last}"


class Pattern:
    """One pattern, parsed and compiled."""

    __slots__ = ("_match", "glob", "literal", "server", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        server, slash, rest = text.partition("/")
        self.server: str | None = server if slash else None
        self.glob = rest if slash else text
        self.literal = not (set(self.glob) & {"*", "?"})
        self._match = re.compile(translate(self.glob), re.DOTALL).fullmatch

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(text: str) -> Pattern:
        """Return the pattern for a text, or raise ValueError saying what is wrong with it."""
        problem = pattern_problem(text)
        if problem:
            raise ValueError(problem)
        return Pattern(text)

    def matches(self, server: str, tool: str) -> bool:
        """Say whether this pattern covers the tool of that server."""
        if self.server is not None and self.server != server:
            return False
        return tool == self.glob if self.literal else self._match(tool) is not None

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def pattern_problem(text: str) -> str | None:
    """What is wrong with a pattern's text, if anything."""
    if not text or text.endswith("/") or text.startswith("/"):
        return "must not be empty"
    if len(text) > MAX_PATTERN_LENGTH:
        return f"must be at most {MAX_PATTERN_LENGTH} characters"
    if text.partition("/")[0] != text and set(text.partition("/")[0]) & {"*", "?"}:
        return "the server part of 'server/tool' takes no wildcards"
    return None


class PatternSet:
    """A list of patterns that answers which of them, in order, is the first to match."""

    __slots__ = ("_everything", "_globs", "_literals", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self._literals: dict[str, str] = {}
        self._globs: list[Pattern] = []
        self._everything: str | None = None
        for text in self.texts:
            self._add(Pattern.parse(text))

    def _add(self, pattern: Pattern) -> None:
        if pattern.text == "*":
            self._everything = "*"
        elif pattern.literal and pattern.server is None:
            self._literals.setdefault(pattern.glob, pattern.text)
        else:
            self._globs.append(pattern)

    def first(self, server: str, tool: str) -> str | None:
        """Return the text of a pattern that covers the tool, or None.

        An exact name is preferred to a glob and a glob to ``*``, so that the reason a person
        reads is the most telling one.
        """
        found = self._literals.get(tool)
        if found is not None:
            return found
        for pattern in self._globs:
            if pattern.matches(server, tool):
                return pattern.text
        return self._everything

    def place(self, server: str, tool: str) -> int:
        """Return where in the list the first pattern stands that covers a tool; else its end."""
        for place, text in enumerate(self.texts):
            if Pattern.parse(text).matches(server, tool):
                return place
        return len(self.texts)

    def __bool__(self) -> bool:
        return bool(self.texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternSet) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return f"PatternSet({list(self.texts)!r})"
