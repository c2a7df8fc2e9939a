"""The parser of every command: it names what was misspelt, and what was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import NoReturn, Protocol

EXIT_FAILED = 1
EXIT_REFUSED = 10
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


Run = Callable[[argparse.Namespace], int]


class Actions(Protocol):
    """The commands of a group, as argparse makes them."""

    def add_parser(self, name: str, /, *, help: str, description: str) -> argparse.ArgumentParser:
        """Add one of them."""
        ...


def actions_of(group: argparse.ArgumentParser) -> Actions:
    """Return where the commands of a group are added."""
    return group.add_subparsers(dest="action", metavar="ACTION", required=True)


def command(
    actions: Actions, name: str, summary: str, run: Run, epilog: str = ""
) -> argparse.ArgumentParser:
    """Add a command to a group."""
    return declared(actions.add_parser(name, help=summary, description=summary), run, epilog)


def declared(
    parser: argparse.ArgumentParser, run: Run, epilog: str = ""
) -> argparse.ArgumentParser:
    """Say what a command runs; its epilog is printed as it stands."""
    parser.epilog = epilog or None
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=run, usage=parser.error)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that every command has."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_strict(parser: argparse.ArgumentParser) -> None:
    """Add the option of whoever wants no doubtful record."""
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
