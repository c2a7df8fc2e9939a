"""Which tests carry which ids, read from the text of the tests and not from a test run.

Reading the source keeps the answer the same for a whole run, a single file and every worker
of a parallel run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARKER = "requirement"
TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Use:
    """One id on one marker, and where."""

    id: str
    where: str


class UnreadableMarker(Exception):
    """A requirement marker whose ids cannot be read from the source."""


def uses_in_tests(root: Path = TESTS) -> list[Use]:
    """Give every id that a marker in a test file under ``root`` carries, in file order."""
    found: list[Use] = []
    for path in sorted(root.rglob("*.py")):
        found.extend(uses_in_source(path.read_text("utf-8"), str(path.relative_to(root.parent))))
    return found


def uses_in_source(source: str, name: str) -> list[Use]:
    """Give every id that a marker in ``source`` carries; refuse what is not a literal."""
    tree = ast.parse(source, filename=name)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_marker(node)]
    _refuse_bare_markers(tree, calls, name)
    return [use for call in calls for use in _ids(call, name)]


def _is_marker(call: ast.Call) -> bool:
    return _names_marker(call.func)


def _names_marker(node: ast.AST) -> bool:
    """Tell ``pytest.mark.requirement`` and ``mark.requirement`` from any other name."""
    if not isinstance(node, ast.Attribute) or node.attr != MARKER:
        return False
    owner = node.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "mark") or (
        isinstance(owner, ast.Name) and owner.id == "mark"
    )


def _refuse_bare_markers(tree: ast.AST, calls: list[ast.Call], name: str) -> None:
    """Refuse an alias or a marker without ids: the scan would not see what it carries."""
    called = {id(call.func) for call in calls}
    for node in ast.walk(tree):
        if _names_marker(node) and id(node) not in called:
            line = getattr(node, "lineno", 0)
            raise UnreadableMarker(f'{name}:{line}: write pytest.mark.requirement("an:id")')


def _ids(call: ast.Call, name: str) -> Iterator[Use]:
    where = f"{name}:{call.lineno}"
    if call.keywords or not call.args:
        raise UnreadableMarker(f"{where}: a requirement marker takes one or more ids, by position")
    for argument in call.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise UnreadableMarker(
                f"{where}: ids must be string literals, so that they can be read and searched for"
            )
        yield Use(argument.value, where)
