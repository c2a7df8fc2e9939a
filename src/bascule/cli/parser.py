"""The parser of every command: it names what was misspelt, and what was probably meant.

Below: argparse. Above: ``main``, whose subcommands all have this class.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

_CHOICE = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<word>.*?)' \(choose from (.*)\)"
)
_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "
_USAGE = 2


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` whose errors say what to type instead."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with exit code 2; a group without its action gets its help."""
        if message in {f"{_MISSING}ACTION", f"{_MISSING}COMMAND"}:
            self.print_help(sys.stderr)
            self.exit(_USAGE, f"\n{self.prog}: error: {message}\n")
        choice = _CHOICE.fullmatch(message)
        if choice is not None:
            message = _misspelt(message, choice)
        elif message.startswith(_UNKNOWN):
            message += _meant(message.removeprefix(_UNKNOWN).split(), self._options())
        super().error(message)

    def _options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]


def _misspelt(message: str, choice: re.Match[str]) -> str:
    """Return the message with the nearest choice in the place of all of them."""
    what, word, choices = choice.groups()
    near = get_close_matches(word, re.findall(r"[\w-]+", choices), n=1)
    if not near:
        return message
    kind = what.lower() if what.isupper() else what
    return f"there is no {kind} {word!r}; did you mean {near[0]!r}?"


def _meant(words: Iterable[str], options: list[str]) -> str:
    """Return the options that are near to words that are none."""
    wrong = [word.partition("=")[0] for word in words if word.startswith("-")]
    near = [name for word in wrong for name in get_close_matches(word, options, n=1)]
    return f"; did you mean {' '.join(near)}?" if near else ""
