"""A tool's input schema as a validator that cannot be turned against us.

The schema comes from a server, so it is untrusted: references are resolved inside the document and
nothing is ever fetched; size, depth and fan-out are bounded (``schema_cost``); patterns run in a
linear-time engine. A pattern which that engine does not know (look-around, back-references) is not
enforced here, and named in ``unenforced``: the server checks its own arguments as well.
Problems name the path and the rule, never the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NoReturn

import jsonschema_rs

from bascule.errors import BasculeError
from bascule.model.json import JsonValue, is_array, is_object
from bascule.model.whole_words import beginning
from bascule.policy.characters import render_safe
from bascule.policy.fitting import Place
from bascule.policy.schema_cost import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_VISITS,
    Cost,
    Schema,
    TooCostly,
    measure,
)
from bascule.policy.schema_defaults import without_defaulted

MAX_PROBLEMS = 10
MAX_MESSAGE = 300

# Work (nodes of the arguments times visits per path) that one validation may take, and the much
# smaller one for which every problem is listed: the library makes all errors before the first.
_MAX_WORK = 5_000_000
_MAX_LISTED_WORK = 50_000
# A schema this cheap at any depth needs no measuring of the arguments.
_CHEAP = 500
_MAX_ARGUMENT_NODES = 200_000

_PATTERNS = jsonschema_rs.RegexOptions(size_limit=1 << 18, dfa_size_limit=1 << 20)
_NOT_SCHEMAS = frozenset({"const", "enum", "default", "examples"})


class SchemaRejected(BasculeError):
    """A tool whose input schema cannot be used, with the reason."""

    code = "invalid_schema"


class ArgumentValidator:
    """One compiled schema. ``valid`` is the fast path, ``problems`` the explanation."""

    __slots__ = ("_cost", "_is_valid", "_lenient", "_measured", "_validator", "unenforced")

    def __init__(
        self,
        validator: jsonschema_rs.Validator,
        cost: Cost,
        unenforced: Iterable[str] = (),
        lenient: jsonschema_rs.Validator | None = None,
    ) -> None:
        self._validator = validator
        self._is_valid = validator.is_valid
        #: The same without requirements that a default makes needless; None when there is none.
        self._lenient = lenient
        self._cost = cost
        self._measured = cost.visits(MAX_DEPTH) > _CHEAP
        self.unenforced = tuple(unenforced)

    def valid(self, arguments: object, kind: type[object] = dict) -> bool:
        """Whether the arguments are an object that the schema accepts; a result may be any kind."""
        if not issubclass(type(arguments), kind):
            return False
        if self._measured and self._work(arguments) is None:
            return False
        try:
            if self._is_valid(arguments):
                return True
            return self._lenient is not None and self._lenient.is_valid(arguments)
        except ValueError:  # not JSON: keys that are no strings, foreign types, endless nesting
            return False

    def problems(
        self, arguments: object, name: str = "arguments", kind: type[object] = dict
    ) -> list[str]:
        """What is wrong, as ``arguments.path: message`` lines; empty when nothing is."""
        if kind is dict and not is_object(arguments):
            return [f"{name}: must be an object"]
        work = self._work(arguments)
        if work is None:
            return [f"{name}: too deep or too large for this schema"]
        try:
            errors = _errors(self._lenient or self._validator, arguments, work)
            return [_line(error, name) for error in errors]
        except ValueError as error:
            return [_shortened(f"{name}: {error}")]

    def misfits(self, value: object) -> list[Place] | None:
        """The places where a value is not what the schema itself says; defaults fill in nothing.

        None when that cannot be told: too much work, or a pattern that is not enforced here.
        """
        work = self._work(value)
        if work is None or self.unenforced:
            return None
        try:
            if self._is_valid(value):
                return []
            return [tuple(e.instance_path) for e in _errors(self._validator, value, work)] or None
        except ValueError:
            return None

    def _work(self, arguments: object) -> int | None:
        """The bound on visits for these arguments; None when that is too much."""
        nodes, levels = measure(arguments, _MAX_ARGUMENT_NODES)
        visits = self._cost.visits(levels - 1)
        work = nodes * visits
        over = nodes > _MAX_ARGUMENT_NODES or levels > MAX_DEPTH or visits > MAX_VISITS
        return None if over or work > _MAX_WORK else work


def _errors(
    validator: jsonschema_rs.Validator, value: object, work: int
) -> Iterator[jsonschema_rs.ValidationError]:
    if work <= _MAX_LISTED_WORK:
        yield from islice(validator.iter_errors(value), MAX_PROBLEMS)
        return
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        yield error


def compile_schema(schema: object = None) -> ArgumentValidator:
    """A validator for a tool's ``inputSchema``; a missing one accepts any object.

    A required property that has a default may be missing: its server fills it in.
    """
    if schema is None:
        schema = {"type": "object"}
    if not is_object(schema):
        raise SchemaRejected("the input schema is not an object")
    cost = _affordable(schema)
    try:
        return _validator(schema, cost, ())
    except (ValueError, jsonschema_rs.ReferencingError):
        relaxed, refused = _without_foreign_patterns(schema)
    try:
        return _validator(relaxed, cost, refused)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaRejected(_reason(error)) from None


def _validator(schema: Schema, cost: Cost, unenforced: Iterable[str]) -> ArgumentValidator:
    strict, fewer = _compiled(schema), without_defaulted(schema)
    lenient = None if fewer is schema else _compiled(fewer)
    return ArgumentValidator(strict, cost, unenforced, lenient)


def _affordable(schema: Schema) -> Cost:
    nodes, levels = measure(schema)
    if nodes > MAX_NODES or levels > MAX_DEPTH:
        raise SchemaRejected(f"over {MAX_NODES} nodes or {MAX_DEPTH} levels")
    try:
        cost = Cost(schema)
    except TooCostly as error:
        raise SchemaRejected(_shortened(str(error))) from None
    if cost.visits(1) > MAX_VISITS:
        raise SchemaRejected("its references multiply beyond any use")
    return cost


def _compiled(schema: Schema) -> jsonschema_rs.Validator:
    """Compile by the draft that ``$schema`` names; 2020-12 when it names none."""
    return jsonschema_rs.validator_for(
        dict(schema),
        validate_formats=False,
        retriever=_refuse,
        mask="the value",
        pattern_options=_PATTERNS,
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{beginning(uri, 200)} is outside the schema, and nothing is fetched")


def _without_foreign_patterns(schema: Schema) -> tuple[Schema, list[str]]:
    """A copy without the patterns that the linear engine does not take, and those patterns."""
    refused: list[str] = []
    return _stripped(schema, refused), refused


def _stripped(value: JsonValue, refused: list[str]) -> Any:
    if is_array(value):
        return [_stripped(item, refused) for item in value]
    if not is_object(value):
        return value
    kept: dict[str, JsonValue] = {}
    for key, member in value.items():
        if key == "pattern" and isinstance(member, str) and not _linear(member):
            refused.append(member)
        elif key == "patternProperties" and is_object(member):
            kept[key] = {p: _stripped(s, refused) for p, s in member.items() if _linear(p)}
        else:
            kept[key] = member if key in _NOT_SCHEMAS else _stripped(member, refused)
    return _open_again(kept, value, refused)


def _open_again(kept: dict[str, JsonValue], original: Schema, refused: list[str]) -> Schema:
    """Names that a dropped pattern would have covered must not count as additional."""
    before, after = original.get("patternProperties"), kept.get("patternProperties")
    if is_object(before) and is_object(after) and len(after) < len(before):
        refused.extend(name for name in before if name not in after)
        kept.pop("additionalProperties", None)
        kept.pop("unevaluatedProperties", None)
    return kept


def _linear(pattern: str) -> bool:
    try:
        _compiled({"pattern": pattern})
    except ValueError:
        return False
    return True


def _line(error: jsonschema_rs.ValidationError, name: str) -> str:
    return _shortened(f"{_path(error.instance_path, name)}: {error.message}")


def _path(steps: Iterable[str | int], path: str) -> str:
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if step.isidentifier() else f"[{beginning(step, 60)!r}]"
    return path


def _shortened(message: str) -> str:
    line = render_safe(message.splitlines()[0] if message else "", one_line=True)
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def _reason(error: Exception) -> str:
    if isinstance(error, jsonschema_rs.ValidationError):
        where = "/".join(str(step) for step in error.instance_path)
        return _shortened(f"{where}: {error.message}" if where else error.message)
    return _shortened(str(error))
