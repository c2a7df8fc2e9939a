"""What changes in effective access from one policy to another, as values that print themselves."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.decision import MEANING, Decision


class ToolChange(Struct, frozen=True):
    """A tool whose decision differs between two policies."""

    name: str
    before: Decision | None
    after: Decision | None

    def __str__(self) -> str:
        """Return what happened and why: what denied it before, or what denies it now."""
        if self.after is not None and self.after.allowed:
            before = "" if self.before is None else f" (before: {_because(self.before)})"
            return f"+ {self.name}{before}"
        return f"- {self.name}" + ("" if self.after is None else f" ({_because(self.after)})")


def _because(decision: Decision) -> str:
    rule = f"{decision.rule}: " if decision.rule else ""
    return rule + MEANING[decision.reason]


class AccessDiff(Struct, frozen=True):
    """What changes in effective access: servers, tools, and the filters behind them."""

    servers_gained: tuple[str, ...]
    servers_lost: tuple[Decision, ...]
    tools: tuple[ToolChange, ...]
    filters: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.servers_gained or self.servers_lost or self.tools or self.filters)

    def __str__(self) -> str:
        lines = [f"+ server {server}" for server in self.servers_gained]
        lines += [f"- server {d.server} ({_because(d)})" for d in self.servers_lost]
        lines += [str(change) for change in self.tools]
        lines += [f"~ {change}" for change in self.filters]
        return "\n".join(lines) or "no change in access"
