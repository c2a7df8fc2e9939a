"""What a session shows of its tools, made anew only when something about it has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bascule.model.decision import Decision
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.definitions import Presented
from bascule.node.bridge.toolset import ToolSet
from bascule.policy.access import Access
from bascule.policy.leaks import Scanner

if TYPE_CHECKING:
    from bascule.node.bridge.core import BridgeCore


class ShownTools:
    """The tools of one session, without credentials, and the set that was given last."""

    def __init__(self, core: BridgeCore) -> None:
        self._core = core
        self._presented: tuple[Access | None, Scanner | None, Presented] = (None, None, ((), ()))
        self._given: tuple[object, object, ToolSet | None] = (None, None, None)

    def of(self, access: Access) -> Presented:
        """Return the tools and warnings about them, looked at once for a table and a scanner."""
        made_for, scanner, presented = self._presented
        if made_for is not access or scanner is not self._core.scanner:
            presented = self._core.shown(access)
            self._presented = (access, self._core.scanner, presented)
        return presented

    def listed(
        self,
        tools: tuple[ToolDescriptor, ...],
        revision: int,
        warnings: tuple[str, ...],
        denials: tuple[Decision, ...],
    ) -> ToolSet:
        """Return a set of tools: the very same one while nothing about it has changed."""
        made_of = (revision, warnings, denials)
        tools_before, made_before, kept = self._given
        if kept is None or tools_before is not tools or made_before != made_of:
            kept = ToolSet(tools, revision=revision, warnings=warnings, denials=denials)
            self._given = (tools, made_of, kept)
        return kept
