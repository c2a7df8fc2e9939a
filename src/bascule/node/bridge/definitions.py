"""Definitions pass the scanner like results: what a server wrote into them is shown masked.

A tool is called, validated and told from its successors by what its server listed; what anybody is
shown of it is masked here, once for a list and a set of known values.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from bascule.model.tool import ToolDescriptor
from bascule.policy.access import Grant
from bascule.policy.cleaning import text_slices
from bascule.policy.leaks import LeakFinding, Scanner

#: So many bytes of a server's instructions are shown.
MAX_INSTRUCTIONS = 8 * 1024
_CUT = " […]"
_MAX_KEPT = 4096
#: The tools of a session as they may be shown, and warnings about them.
Presented: TypeAlias = tuple[tuple[ToolDescriptor, ...], tuple[str, ...]]


class Shown(NamedTuple):
    """A tool as it may be shown; None when it may not be, and what was found in it."""

    tool: ToolDescriptor | None
    leaks: LeakFinding | None = None


class Definitions:
    """The tools of a bridge as they are shown, for the values that are known now."""

    def __init__(self) -> None:
        self._scanner: Scanner | None = None
        self._shown: dict[tuple[str, str, str, str], Shown] = {}
        self._instructions: dict[str, str] = {}

    def instructions(self, text: str, scanner: Scanner) -> str:
        """Return a server's instructions as they may be shown."""
        self._follow(scanner)
        found = self._instructions.get(text)
        if found is None:
            found = self._instructions[text] = _beginning(text, scanner)
        return found

    def _follow(self, scanner: Scanner) -> None:
        kept = max(len(self._shown), len(self._instructions))
        if scanner is not self._scanner or kept >= _MAX_KEPT:
            self._scanner, self._shown, self._instructions = scanner, {}, {}

    def shown(self, grant: Grant, scanner: Scanner) -> Shown:
        """Return a tool as it may be shown."""
        if grant.record.hygiene.leaks == "off":
            return Shown(grant.tool)
        self._follow(scanner)
        tool = grant.tool
        key = tool.server_id, tool.model_name, tool.digest, grant.record.hygiene.leaks
        found = self._shown.get(key)
        if found is None:
            found = self._shown[key] = _looked_at(grant, scanner)
        return found


def _beginning(text: str, scanner: Scanner) -> str:
    """Return the start of a text without credentials; a mark at its end says that it was cut."""
    written = b""
    for piece in text_slices(text, scanner, MAX_INSTRUCTIONS):
        written += piece.text.encode()
        if len(written) > MAX_INSTRUCTIONS:
            break
    else:
        return written.decode()
    return written[: MAX_INSTRUCTIONS - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def _looked_at(grant: Grant, scanner: Scanner) -> Shown:
    tool = grant.tool
    masked, leaks = scanner.mask_json(tool.definition)
    named = scanner.scan(tool.name) or scanner.scan(tool.model_name)
    if not leaks.total and not named:
        return Shown(tool)
    if named or grant.record.hygiene.leaks == "block":
        return Shown(None, leaks)  # a name that is masked could not be called
    description = masked.get("description", "")
    safe = replace(
        tool,
        description=description if isinstance(description, str) else "",
        input_schema=masked["inputSchema"],
        output_schema=masked.get("outputSchema"),
        annotations=masked.get("annotations"),
        definition=masked,
    )
    return Shown(safe, leaks)


def told(shown: Shown, server: str, name: str) -> str | None:
    """Return the warning about a tool, if there is one."""
    if shown.leaks is None:
        return None
    if shown.tool is None:
        return f"{server}: a tool is not shown: its definition holds credentials ({shown.leaks})"
    return f"{server}: credentials masked in the definition of {name}: {shown.leaks}"
