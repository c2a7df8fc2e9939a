"""Why a tool or a server may be used, or not: readable when printed, the same JSON everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field, to_builtins

from bascule.model.decision import MEANING, Decision, Layer, Reason
from bascule.model.server import Transport


class LayerFilter(Struct, frozen=True):
    """One source's lists, as far as they are about the server; absent lists do not narrow."""

    layer: Layer
    source: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    read_only: bool = False

    def __str__(self) -> str:
        parts = [] if self.allow is None else [f"allows {_listed(self.allow)}"]
        parts += [f"denies {_listed(self.deny)}"] if self.deny else []
        parts += ["only tools classed as read"] if self.read_only else []
        return f"{self.source} ({self.layer}) {'; '.join(parts)}"


class MergedFilter(Struct, frozen=True):
    """What the layers come to: a tool must be covered by ``allow`` and not by ``deny``.

    An entry ``a & b`` of ``allow`` stands for what both patterns cover.
    """

    allow: tuple[str, ...]
    deny: tuple[str, ...]
    read_only: bool

    def __str__(self) -> str:
        together = f"allow {_listed(self.allow)}; deny {_listed(self.deny)}"
        return together + ("; only tools classed as read" if self.read_only else "")


class Filters(Struct, frozen=True):
    """The tool filters over one server: what each layer says, and all of them together."""

    layers: tuple[LayerFilter, ...]
    merged: MergedFilter


class Objection(Struct, frozen=True):
    """One reason against a use, and the layer that gave it."""

    layer: Layer
    reason: Reason
    meaning: str
    rule: str

    @classmethod
    def of(cls, decision: Decision) -> Objection:
        """Return a decision's part of an explanation."""
        return cls(decision.layer, decision.reason, MEANING[decision.reason], decision.rule)

    def __str__(self) -> str:
        by = f" by {self.rule}" if self.rule else ""
        return f"{self.layer}: {self.reason}{by}: {self.meaning}"


class AboutServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What anybody who may use a server may know of its record."""

    transport: Transport
    display_name: str = ""
    tags: tuple[str, ...] = ()


class Explanation(Struct, frozen=True, kw_only=True):
    """The decision on a tool or a server, with everything that stands in its way.

    ``filters`` are what the layers say of the server's tools, as far as the session's task may
    know. ``tool`` is None when it is about a server; ``about`` is there then, as far as well.
    """

    name: str
    server: str
    tool: str | None
    allowed: bool
    layer: Layer
    reason: Reason
    meaning: str
    rule: str
    notes: tuple[str, ...]
    objections: tuple[Objection, ...] = field(default=(), name="blocked_by")
    filters: Filters | None = None
    revision: int
    about: AboutServer | UnsetType = UNSET

    @property
    def decision(self) -> Decision:
        """Return the decision: the first objection, if there is one."""
        return self._decided(self)

    @property
    def blocked_by(self) -> tuple[Decision, ...]:
        """Return every objection as a decision, the one that decided first."""
        return tuple(map(self._decided, self.objections))

    def _decided(self, by: Explanation | Objection) -> Decision:
        return Decision(self.server, self.tool, self.allowed, by.layer, by.reason, by.rule)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return to_builtins(self)

    def __str__(self) -> str:
        unknown = self.decision.names_nothing
        verdict = "allowed" if self.allowed else "unknown" if unknown else "denied"
        lines = [
            f"{self.name}: {verdict}",
            f"  layer   {self.layer}",
            f"  reason  {self.reason}: {self.meaning}",
        ]
        if self.rule:
            lines.append(f"  rule    {self.rule}")
        lines += [f"  also    {one}" for one in self.objections[1:]]
        if self.filters is not None:
            lines += [f"  filter  {layer}" for layer in self.filters.layers]
            lines.append(f"  merged  {self.filters.merged}")
        lines += [f"  note    {note}" for note in self.notes]
        lines.append(f"  at registry revision {self.revision}")
        return "\n".join(lines)


def explained(
    name: str,
    decision: Decision,
    revision: int,
    *,
    notes: tuple[str, ...] = (),
    blocked_by: Sequence[Decision] = (),
    filters: Filters | None = None,
) -> Explanation:
    return Explanation(
        name=name,
        server=decision.server,
        tool=decision.tool,
        allowed=decision.allowed,
        layer=decision.layer,
        reason=decision.reason,
        meaning=MEANING[decision.reason],
        rule=decision.rule,
        notes=notes,
        objections=tuple(map(Objection.of, blocked_by)),
        filters=filters,
        revision=revision,
    )


def _listed(patterns: Sequence[str]) -> str:
    return ", ".join(patterns) or "nothing"
