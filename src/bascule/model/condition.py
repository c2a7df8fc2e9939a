"""Conditions on a call, written in CEL and parsed once.

A condition that cannot be evaluated raises, so that its rule fails closed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from bascule.model.json import JsonObject

MAX_CONDITION_LENGTH = 2048
VARIABLES = ("args", "caller", "server", "task", "tool", "user")


class ConditionError(ValueError):
    """A condition that cannot be parsed or evaluated."""


class Condition:
    """One parsed expression over ``args``, ``caller``, ``server``, ``task``, ``tool``, ``user``."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str, program: Any) -> None:
        self.text = text
        self._program = program

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> Condition:
        """Parse an expression, or raise ConditionError saying where it is wrong."""
        if not text.strip():
            raise ConditionError("must not be empty")
        if len(text) > MAX_CONDITION_LENGTH:
            raise ConditionError(f"must be at most {MAX_CONDITION_LENGTH} characters")
        program = _compile(text)
        unknown = sorted(set(program.variables()) - set(VARIABLES))
        if unknown:
            raise ConditionError(
                f"unknown variable {unknown[0]!r}; known are {', '.join(VARIABLES)}"
            )
        return Condition(text, program)

    def holds(self, facts: JsonObject) -> bool:
        """Evaluate; raise ConditionError when a fact is missing or the answer is no boolean."""
        try:
            answer: object = self._program.execute(dict(facts))
        except Exception as error:
            raise ConditionError(_first_line(error)) from error
        if not isinstance(answer, bool):
            raise ConditionError(f"gives {type(answer).__name__}, not a boolean")
        return answer

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


def _compile(text: str) -> Any:
    import cel  # noqa: PLC0415 - 168 ms that only records with a condition should pay

    try:
        return cel.compile(text)
    except ValueError as error:
        raise ConditionError(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rpartition("ERROR: ")[2].replace("<input>:", "at ")
