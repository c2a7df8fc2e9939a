"""Writes that wait for an administrator, since they would give a credential a new target."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.kinds import Kind
from bascule.wire.api.records import Plain


class ProposedPair(Struct, frozen=True):
    """A credential and where it would go."""

    reference: str
    target: str


class ProposalShown(Struct, frozen=True, kw_only=True):
    """A write that waits; ``proposal`` is the name of exactly this one."""

    kind: Kind
    id: str
    proposal: str
    actor: str
    at: str | None
    base: int
    pairs: tuple[ProposedPair, ...]
    record: Plain


class ProposalRefused(Struct, frozen=True):
    """The record whose proposal was refused, and is gone."""

    kind: Kind
    id: str


class ProposalList(Struct, frozen=True):
    """What waits, the oldest first."""

    proposals: tuple[ProposalShown, ...]
