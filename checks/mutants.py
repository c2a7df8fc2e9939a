"""Small changes to a module, one at a time, that its tests should notice.

A change is made on the syntax tree while the module is imported: no file on disk is written, so
a run that is stopped leaves the source as it was.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], str]] = {
    ast.Lt: (ast.LtE, "< to <="),
    ast.LtE: (ast.Lt, "<= to <"),
    ast.Gt: (ast.GtE, "> to >="),
    ast.GtE: (ast.Gt, ">= to >"),
    ast.Eq: (ast.NotEq, "== to !="),
    ast.NotEq: (ast.Eq, "!= to =="),
    ast.Is: (ast.IsNot, "is to is not"),
    ast.IsNot: (ast.Is, "is not to is"),
    ast.In: (ast.NotIn, "in to not in"),
    ast.NotIn: (ast.In, "not in to in"),
}
_COMPUTED: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "+ to -"),
    ast.Sub: (ast.Add, "- to +"),
    ast.Mult: (ast.FloorDiv, "* to //"),
    ast.Div: (ast.Mult, "/ to *"),
    ast.FloorDiv: (ast.Mult, "// to *"),
    ast.BitOr: (ast.BitAnd, "| to &"),
    ast.BitAnd: (ast.BitOr, "& to |"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one place: the line, what it does, and how it is made on the tree."""

    line: int
    what: str
    make: Callable[[], None]


def changes(tree: ast.Module) -> list[Change]:
    """Give every change there is of the functions of a module, always in the same order."""
    return [
        change
        for function in _outermost(tree)
        for node in (function, *_inside(function))
        for change in (*_changes_of(node), *_left_out(node))
    ]


def _outermost(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _outermost(child)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the body and the defaults; annotations and decorators are not behaviour of a call."""
    beside = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    beside += getattr(node, "decorator_list", [])
    for child in ast.iter_child_nodes(node):
        if child not in beside:
            yield child
            yield from _inside(child)


def _changes_of(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op]):
            other, what = _COMPARED[type(op)]
            yield Change(node.lineno, what, lambda: setattr(node, "ops", [other()]))
        case ast.BoolOp(op=ast.And()):
            yield Change(node.lineno, "and to or", lambda: setattr(node, "op", ast.Or()))
        case ast.BoolOp(op=ast.Or()):
            yield Change(node.lineno, "or to and", lambda: setattr(node, "op", ast.And()))
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _COMPUTED:
            computed, what = _COMPUTED[type(op)]
            yield Change(node.lineno, what, lambda: setattr(node, "op", computed()))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield Change(node.lineno, "condition negated", lambda: setattr(node, "test", negated))
        case ast.Constant(value=bool() as value):
            yield Change(node.lineno, f"{value} flipped", lambda: setattr(node, "value", not value))
        case ast.Constant(value=int() | float() as value):
            yield Change(
                node.lineno, f"{value} plus one", lambda: setattr(node, "value", value + 1)
            )
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            nothing = ast.copy_location(ast.Constant(None), value)
            yield Change(node.lineno, "returns None", lambda: setattr(node, "value", nothing))
        case _:
            return


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _left_out(node: ast.AST) -> Iterator[Change]:
    """Leave out a statement that acts: a call, a raise, a value put into an object."""
    for field in ("body", "orelse", "finalbody"):
        block: object = getattr(node, field, None)
        if isinstance(block, list):
            yield from _left_out_of(block)  # pyright: ignore[reportUnknownArgumentType]


def _left_out_of(block: list[ast.stmt]) -> Iterator[Change]:
    for number, statement in enumerate(block):
        if _acts(statement):
            gone = ast.copy_location(ast.Pass(), statement)
            what = f"{type(statement).__name__.lower()} left out"
            yield Change(
                statement.lineno,
                what,
                lambda number=number, gone=gone: block.__setitem__(number, gone),
            )


def _acts(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case _:
            return False


class _Changed(SourceFileLoader):
    """Loads a module with one change in it."""

    def __init__(self, name: str, path: str, number: int) -> None:
        super().__init__(name, path)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path))
        changes(tree)[self._number].make()
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


class Finder(MetaPathFinder):
    """Gives one module with a change in it to whoever imports it."""

    def __init__(self, module: str, number: int) -> None:
        self._module = module
        self._number = number

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find that one module, and leave all others to the finders after this one."""
        if fullname != self._module:
            return None
        found = PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            raise ImportError(f"no source for {fullname}")
        loader = _Changed(fullname, found.origin, self._number)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def install(module: str, number: int) -> None:
    """Have ``module`` imported with its change of this number."""
    sys.meta_path.insert(0, Finder(module, number))


def changes_of(path: Path) -> list[Change]:
    """Give the changes there are of a file."""
    return changes(ast.parse(path.read_bytes()))
