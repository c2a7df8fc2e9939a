"""What a command says when it could not do its work, and the exit code that goes with it.

Text on standard error, one problem a line; with ``--json`` also one document on standard output,
in the shape that the API's errors have. Below: the error tree. Above: ``main``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from bascule.cli.running import print_json, shown
from bascule.cli.table import paint
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.json import is_array, is_object

EXIT_FAILED = 1
EXIT_REFUSED = 10
_FORBIDDEN = 403
_HINTS = {
    "unauthenticated": "the token is not known there, has expired or was revoked",
    "unreachable": "is it running? on this machine it is started with: bascule up",
    "already_exists": "change some fields of it with set, or replace it with apply",
    "no_node": "a node is needed for this; bascule up has one",
}


def report(error: BasculeError, *, as_json: bool) -> int:
    """Say what went wrong; return the exit code."""
    if as_json:
        print_json({"error": error_object(error)})
    for line in _lines(error):
        print(paint(f"error: {shown(line)}", "red", sys.stderr), file=sys.stderr)
    hint = _hint(error)
    if hint:
        print(shown(hint), file=sys.stderr)
    refused = vars(error).get("status") == _FORBIDDEN
    return EXIT_REFUSED if refused else EXIT_FAILED


def error_object(error: BasculeError) -> dict[str, Any]:
    """Return ``{"code", "message", "details"}``."""
    return {"code": error.code, "message": str(error), "details": _details(error)}


def _details(error: BasculeError) -> dict[str, Any]:
    if isinstance(error, InvalidRecord):
        return {"source": error.source, "problems": list(error.problems)}
    details = vars(error).get("details")
    return dict(details) if is_object(details) else {}


def _lines(error: BasculeError) -> Iterable[str]:
    problems = _details(error).get("problems")
    if not is_array(problems) or not problems:
        return [str(error)]
    source = vars(error).get("source")
    return [f"{source}: {problem}" if source else str(problem) for problem in problems]


def _hint(error: BasculeError) -> str:
    if error.code == "owned_by_file":
        return "\n".join(_adoptions(_details(error)))
    return _HINTS.get(error.code, "")


def _adoptions(details: Mapping[str, Any]) -> list[str]:
    rows = details.get("owned")
    owned = [row for row in rows if is_object(row)] if is_array(rows) else []
    return [f"take it over with: bascule {row.get('kind')}s adopt {row.get('id')}" for row in owned]
