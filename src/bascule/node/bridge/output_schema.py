"""Results against the schema that their tool promises: one check for all doors.

``hygiene.output_schema`` says what follows: ``warn`` tells the caller, ``refuse`` makes it a
failure of the tool, which did run, ``off`` does not look. What was cut is not judged, nor is what
the tool itself calls an error. Schemas are compiled once per definition, and nothing is fetched.
"""

from __future__ import annotations

from bascule.model.outcome import Failure, failure
from bascule.model.server import OutputSchemaMode
from bascule.model.tool import ToolDescriptor
from bascule.policy.schema import ArgumentValidator, SchemaRejected, compile_schema

_MAX_KEPT = 4096


class OutputCheck:
    """What one tool promises of its results."""

    __slots__ = ("_tool", "_unusable", "_validator", "_validators", "refuses")

    def __init__(
        self,
        tool: ToolDescriptor,
        mode: OutputSchemaMode,
        validators: dict[str, ArgumentValidator],
    ) -> None:
        self._tool = tool
        self._validators = validators
        self._validator: ArgumentValidator | None = None
        self._unusable: str | None = None
        self.refuses = mode == "refuse"

    def problems(self, structured: object) -> list[str]:
        """Return what is wrong with a result; nothing when it keeps the promise."""
        if structured is None:
            return ["there is no structured content"]
        validator = self.validator
        if validator is None or validator.valid(structured, object):
            return []
        return validator.problems(structured, "result", object)

    @property
    def unusable(self) -> str | None:
        """Return why nothing can be checked: no result can break a promise that says nothing."""
        if self.validator is not None:
            return None
        return f"the tool's output schema cannot be used: {self._unusable}"

    @property
    def validator(self) -> ArgumentValidator | None:
        """Return the schema as it is enforced; None when it cannot be used."""
        if self._validator is not None or self._unusable is not None:
            return self._validator
        key = f"output {self._tool.digest}"
        try:
            found = self._validators.get(key) or compile_schema(self._tool.output_schema)
        except SchemaRejected as error:
            self._unusable = str(error)
            return None
        if len(self._validators) >= _MAX_KEPT:
            self._validators.clear()
        self._validator = self._validators[key] = found
        return found


def output_check(
    tool: ToolDescriptor, mode: OutputSchemaMode, validators: dict[str, ArgumentValidator]
) -> OutputCheck | None:
    """Return the check of a tool's results; None when there is nothing to check."""
    if mode == "off" or tool.output_schema is None:
        return None
    return OutputCheck(tool, mode, validators)


def misfit(problems: list[str]) -> str:
    """Return what is wrong with a result, in one line."""
    return f"the result does not fit the tool's output schema: {'; '.join(problems)}"


def refused(problems: list[str]) -> Failure:
    """Return the failure of a call whose result was not what its tool promises."""
    details = {"reason": "output_schema", "problems": problems}
    return failure("mcp_tool_error", f"the tool ran, but {misfit(problems)}", details=details)
