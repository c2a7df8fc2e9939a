"""The parser of every command: it names what was misspelt, and what was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol, TypeAlias

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 10
#: Of what somebody has to approve first.
EXIT_WAITING = 11
_CHOICE = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<word>.*?)' \(choose from (.*)\)"
)
_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` whose errors say what to type instead."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with exit code 2; a group without its action gets its help."""
        if message in {f"{_MISSING}ACTION", f"{_MISSING}COMMAND"}:
            self.print_help(sys.stderr)
            self.exit(EXIT_USAGE, f"\n{self.prog}: error: {message}\n")
        choice = _CHOICE.fullmatch(message)
        if choice is not None:
            message = _misspelt(message, choice)
        elif message.startswith(_UNKNOWN):
            message += _meant(message.removeprefix(_UNKNOWN).split(), self._options())
        super().error(message)

    def takes(self, *options: Option) -> Parser:
        """Add options and arguments."""
        for add in options:
            add(self)
        return self

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


Run: TypeAlias = Callable[[argparse.Namespace], int]


class Actions(Protocol):
    """The commands of a group, as argparse makes them."""

    def add_parser(self, name: str, /, *, help: str, description: str) -> Parser: ...


class Options(Protocol):
    """A command, or a group of its options."""

    def add_argument(self, *names: str, **details: Any) -> object: ...

    def add_mutually_exclusive_group(self) -> Options:
        """Add options of which one may be given."""
        ...


Option: TypeAlias = Callable[[Options], object]


def option(name: str, metavar: str | None, text: str, *names: str, **details: Any) -> Option:
    """Return an option that any command may have; without dashes it stands at its place."""
    given = {"metavar": metavar, "help": text, **details}
    return lambda options: options.add_argument(name, *names, **given)


def switch(name: str, text: str, **details: Any) -> Option:
    return lambda options: options.add_argument(name, action="store_true", help=text, **details)


def many(name: str, metavar: str, text: str, **details: Any) -> Option:
    """Return an option that may be repeated."""
    return option(name, metavar, text, **{"action": "append", "default": [], **details})


def one_of(*choices: Option) -> Option:
    """Return options of which one may be given."""

    def add(options: Options) -> None:
        group = options.add_mutually_exclusive_group()
        for choice in choices:
            choice(group)

    return add


JSON = switch("--json", "print JSON")
STRICT = switch("--strict", "treat warnings as errors")
DRY_RUN = switch("--dry-run", "print what would change, and exit")
INSECURE = switch("--insecure", "allow plain http to other machines")
ENVIRONMENT = option("--environment", "NAME", "the environment for profiles")
#: Where commands find a token that is not on their line.
TOKEN_VARIABLE = "BASCULE_TOKEN"  # noqa: S105 - the variable's name


def actions_of(group: Parser) -> Actions:
    """Return where the commands of a group are added."""
    return group.add_subparsers(dest="action", metavar="ACTION", required=True)


def command(
    actions: Actions, name: str, summary: str, run: Run, *options: Option, epilog: str = ""
) -> Parser:
    """Add a command to a group."""
    parser = actions.add_parser(name, help=summary, description=summary)
    return declared(parser, run, *options, epilog=epilog)


def declared(parser: Parser, run: Run, *options: Option, epilog: str = "") -> Parser:
    """Say what a command runs and takes; its epilog is printed as it stands."""
    parser.epilog = epilog or None
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=run, usage=parser.error)
    return parser.takes(*options)
