"""Sizes that fail: a module of 500 lines, a test module of 600, a function of 60.

An advisory limit is no limit, so there is no list of exceptions; generated code is exempt.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from checks.tree import ROOT, report, repository_files

MODULE_LINES = 500
TEST_MODULE_LINES = 600
FUNCTION_LINES = 60


def main() -> int:
    """Check every Python file of the repository."""
    files = [
        path for path in repository_files() if path.suffix == ".py" and "_pb2" not in path.name
    ]
    return report([complaint for path in files for complaint in complaints_about(path)])


def complaints_about(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Name what is too long in one file, and where."""
    name = path.relative_to(root)
    source = path.read_text(encoding="utf-8")
    limit = TEST_MODULE_LINES if name.parts[0] == "tests" else MODULE_LINES
    length = len(source.splitlines())
    if length > limit:
        yield f"{name}: {length} lines, at most {limit}: split it by subject"
    try:
        functions = list(_functions(source))
    except SyntaxError as error:
        yield f"{name}:{error.lineno}: cannot be read as Python: {error.msg}"
        return
    for function in functions:
        size = (function.end_lineno or function.lineno) - function.lineno + 1
        if size > FUNCTION_LINES:
            where = f"{name}:{function.lineno}"
            yield f"{where}: {function.name} has {size} lines, at most {FUNCTION_LINES}: extract"


def _functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


if __name__ == "__main__":
    sys.exit(main())
