"""What a command says when it could not do its work, and the exit code that goes with it.

Text on standard error, one problem a line; with ``--json`` also one document on standard output,
in the shape that the API's errors have.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable

from bascule.cli.command import print_json, shown
from bascule.cli.command_line import typed
from bascule.cli.parser import EXIT_FAILED, EXIT_REFUSED, TOKEN_VARIABLE
from bascule.cli.table import paint
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.json import JsonObject, is_array, is_object, objects

_FORBIDDEN = 403
_OF_A_TOKEN = ("unauthenticated", "forbidden")
_HINTS = {
    "unauthenticated": f"give another: --token, or {TOKEN_VARIABLE}",
    "already_exists": "change some fields of it with set, or replace it with apply",
    "no_node": "this needs a node; start one with bascule up or bascule node serve",
}


def report(
    error: BasculeError | OSError,
    *,
    as_json: bool,
    arguments: argparse.Namespace | None = None,
) -> int:
    """Say what went wrong, and what to type next; return the exit code."""
    if as_json:
        print_json({"error": error_object(error)})
    complain(error_lines(error))
    hint = _hint(error, arguments) if isinstance(error, BasculeError) else ""
    if hint:
        print(hint, file=sys.stderr)
    refused = vars(error).get("status") == _FORBIDDEN
    return EXIT_REFUSED if refused else EXIT_FAILED


def complain(problems: Iterable[str]) -> None:
    """Print what went wrong, one problem a line."""
    for problem in problems:
        print(paint(f"error: {shown(problem)}", "red", sys.stderr), file=sys.stderr)


def error_object(error: BasculeError | OSError) -> JsonObject:
    """Return ``{"code", "message", "details"}``."""
    code = error.code if isinstance(error, BasculeError) else "os_error"
    return {"code": code, "message": _words(error), "details": _details(error)}


def _words(error: BasculeError | OSError) -> str:
    """Return what is wrong; what the system refused, with the file it is about."""
    if isinstance(error, BasculeError) or error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _details(error: BasculeError | OSError) -> JsonObject:
    if isinstance(error, InvalidRecord):
        return {"source": error.source, "problems": error.problems}
    details = vars(error).get("details")
    return details if is_object(details) else {}


def error_lines(error: BasculeError | OSError) -> Iterable[str]:
    """Return what went wrong, one problem a line."""
    problems = _details(error).get("problems")
    if not is_array(problems) or not problems:
        return [_words(error)]
    source = vars(error).get("source")
    return [f"{source}: {problem}" if source else str(problem) for problem in problems]


def _hint(error: BasculeError, arguments: argparse.Namespace | None) -> str:
    if error.code == "owned_by_file":
        return "\n".join(_adoptions(_details(error), arguments))
    if error.code == "unreachable":
        return f"is it running? on this machine it is started with: {typed('up')}"
    if error.code == "own_call":
        token = typed("tokens create --role approver --user NAME", arguments)
        return f"somebody else decides, with a token of their own (--token): {token}"
    if error.code in _OF_A_TOKEN and _token_was_found(arguments):
        return f"the token is that of {TOKEN_VARIABLE}; without it, commands here use their own"
    return _HINTS.get(error.code, "")


def _token_was_found(arguments: argparse.Namespace | None) -> bool:
    """Whether a command took its token from the environment, where clients' tokens are too."""
    given = None if arguments is None else vars(arguments).get("token")
    return not given and bool(os.environ.get(TOKEN_VARIABLE))


def _adoptions(details: JsonObject, arguments: argparse.Namespace | None) -> list[str]:
    owned = objects(details.get("owned"))
    commands = [shown(f"{row.get('kind')}s adopt {row.get('id')}") for row in owned]
    return [f"take it over with: {typed(words, arguments)}" for words in commands]
