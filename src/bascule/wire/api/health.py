"""Health, readiness, and the proof of a data directory's owner."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Health(Struct, frozen=True):
    """How the process is: ``servers`` counts them by state."""

    status: Literal["ok", "degraded"]
    revision: int
    servers: dict[str, int]


class Ready(Struct, frozen=True):
    """The process serves and can write."""

    status: Literal["ready"] = "ready"


class InstanceProof(Struct, frozen=True):
    """What only the process that holds the lock can answer to a challenge."""

    proof: str
