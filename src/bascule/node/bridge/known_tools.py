"""The tools of every server as people may read them, without asking any.

They are looked at once for a list and the values to hide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from bascule.model.tool import ToolDescriptor
from bascule.policy.cleaning import clean_value
from bascule.policy.leaks import Scanner

Tools = tuple[ToolDescriptor, ...]


class _Kept(NamedTuple):
    listed: Sequence[ToolDescriptor]
    scanners: tuple[Scanner, Scanner]
    shown: Tools


class KnownTools:
    """What servers listed last, cleaned; the same list stays the same."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def of(self, listed: Mapping[str, Tools], names: Scanner, texts: Scanner) -> dict[str, Tools]:
        """Return the tools by server, without those that are called like a credential.

        Names stay as they are, since policy decides on them; all else is fit to be read.
        """
        by = names, texts
        self._kept = {
            server: self._looked_at(server, tools, by) for server, tools in listed.items()
        }
        return {server: one.shown for server, one in self._kept.items()}

    def _looked_at(self, server: str, tools: Tools, scanners: tuple[Scanner, Scanner]) -> _Kept:
        kept, (names, texts) = self._kept.get(server), scanners
        if kept is not None and kept.listed is tools and kept.scanners == scanners:
            return kept
        named = [tool for tool in tools if not names_credential(tool, names)]
        return _Kept(tools, scanners, tuple(_readable(tool, texts) for tool in named))


def names_credential(tool: ToolDescriptor, scanner: Scanner) -> bool:
    """Say whether a tool is called like a credential: its name is then shown to nobody."""
    return bool(scanner.scan(tool.name) or scanner.scan(tool.model_name))


def _readable(tool: ToolDescriptor, scanner: Scanner) -> ToolDescriptor:
    clean = clean_value(tool.definition, scanner).value
    if clean == tool.definition:
        return tool
    description = clean.get("description", "")
    return replace(
        tool,
        description=description if isinstance(description, str) else "",
        input_schema=clean["inputSchema"],
        output_schema=clean.get("outputSchema"),
        annotations=clean.get("annotations"),
        definition=clean,
    )
