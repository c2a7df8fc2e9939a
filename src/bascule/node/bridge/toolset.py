"""The tools of a session, as the doors and agent developers use them.

Descriptions are a server's words: they are made harmless for a model before they are shown to one,
and decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from bascule.model.decision import Decision, Unlisted
from bascule.model.json import is_array, is_object
from bascule.model.tool import ToolDescriptor
from bascule.policy.characters import neutralise

_PROSE = frozenset({"description", "title", "$comment"})


class ToolSet(Sequence[ToolDescriptor]):
    """An ordered, immutable set of tools with the revision that decided it."""

    __slots__ = ("__weakref__", "_tools", "revision", "unlisted", "warnings")

    def __init__(
        self,
        tools: Sequence[ToolDescriptor],
        *,
        revision: int,
        warnings: Sequence[str] = (),
        denials: Iterable[Decision] = (),
    ) -> None:
        self._tools = tuple(tools)
        self.revision = revision
        self.warnings = tuple(warnings)
        #: Why servers that were wanted did not list, by server.
        self.unlisted: Mapping[str, Unlisted] = {
            denial.server: Unlisted.because(denial) for denial in denials
        }

    def missing(self, server_id: str) -> Unlisted | None:
        """Return why a server did not list, if it did not."""
        return self.unlisted.get(server_id) or self.unlisted.get("")

    def openai(self) -> list[dict[str, Any]]:
        """Return the tools as OpenAI's ``tools`` entries."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.model_name,
                    "description": neutralise(tool.description).text,
                    "parameters": harmless(tool.input_schema),
                },
            }
            for tool in self._tools
        ]

    def anthropic(self) -> list[dict[str, Any]]:
        """Return the tools as Anthropic's ``tools`` entries."""
        return [
            {
                "name": tool.model_name,
                "description": neutralise(tool.description).text,
                "input_schema": harmless(tool.input_schema),
            }
            for tool in self._tools
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names a model sees."""
        return tuple(tool.model_name for tool in self._tools)

    @overload
    def __getitem__(self, index: int) -> ToolDescriptor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ToolDescriptor, ...]: ...
    def __getitem__(self, index: int | slice) -> ToolDescriptor | tuple[ToolDescriptor, ...]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[ToolDescriptor]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self.names)})"


def harmless(schema: object, key: str = "") -> Any:
    """Return a schema whose prose is harmless; names and values that arguments need stay."""
    if is_object(schema):
        return {name: harmless(part, name) for name, part in schema.items()}
    if is_array(schema):
        return [harmless(part) for part in schema]
    return neutralise(schema).text if key in _PROSE and isinstance(schema, str) else schema
