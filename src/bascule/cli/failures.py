"""What a command says when it could not do its work, and the exit code that goes with it.

Text on standard error, one problem a line; with ``--json`` also one document on standard output,
in the shape that the API's errors have. Below: the error tree. Above: ``main``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from bascule.cli.command import print_json, shown
from bascule.cli.command_line import typed
from bascule.cli.parser import (
    EXIT_FAILED,
    EXIT_REFUSED,
)
from bascule.cli.table import paint
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.json import is_array, is_object

_FORBIDDEN = 403
_HINTS = {
    "unauthenticated": "give another: --token, or BASCULE_TOKEN",
    "already_exists": "change some fields of it with set, or replace it with apply",
    "no_node": "a node is needed for this; bascule up has one",
}


def report(
    error: BasculeError, *, as_json: bool, arguments: argparse.Namespace | None = None
) -> int:
    """Say what went wrong, and what to type next; return the exit code."""
    if as_json:
        print_json({"error": error_object(error)})
    for line in error_lines(error):
        print(paint(f"error: {shown(line)}", "red", sys.stderr), file=sys.stderr)
    hint = _hint(error, arguments)
    if hint:
        print(hint, file=sys.stderr)
    refused = vars(error).get("status") == _FORBIDDEN
    return EXIT_REFUSED if refused else EXIT_FAILED


def report_os_error(error: OSError, *, as_json: bool) -> int:
    """Say what the system refused; return the exit code."""
    words = os_words(error)
    if as_json:
        print_json({"error": {"code": "os_error", "message": words, "details": {}}})
    print(paint(f"error: {shown(words)}", "red", sys.stderr), file=sys.stderr)
    return EXIT_FAILED


def os_words(error: OSError) -> str:
    """Return what the system refused, and for which file."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def error_object(error: BasculeError) -> dict[str, Any]:
    """Return ``{"code", "message", "details"}``."""
    return {"code": error.code, "message": str(error), "details": _details(error)}


def _details(error: BasculeError) -> dict[str, Any]:
    if isinstance(error, InvalidRecord):
        return {"source": error.source, "problems": list(error.problems)}
    details = vars(error).get("details")
    return dict(details) if is_object(details) else {}


def error_lines(error: BasculeError) -> Iterable[str]:
    """Return what went wrong, one problem a line."""
    problems = _details(error).get("problems")
    if not is_array(problems) or not problems:
        return [str(error)]
    source = vars(error).get("source")
    return [f"{source}: {problem}" if source else str(problem) for problem in problems]


def _hint(error: BasculeError, arguments: argparse.Namespace | None) -> str:
    if error.code == "owned_by_file":
        return "\n".join(_adoptions(_details(error), arguments))
    if error.code == "unreachable":
        return f"is it running? on this machine it is started with: {typed('up')}"
    return _HINTS.get(error.code, "")


def _adoptions(details: Mapping[str, Any], arguments: argparse.Namespace | None) -> list[str]:
    rows = details.get("owned")
    owned = [row for row in rows if is_object(row)] if is_array(rows) else []
    commands = [shown(f"{row.get('kind')}s adopt {row.get('id')}") for row in owned]
    return [f"take it over with: {typed(words, arguments)}" for words in commands]
