"""The types of the manifest: one required behaviour, where it was asked for, and its state.

Above: the data modules of this package, one per area. Below: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Work(StrEnum):
    """The pieces of work a behaviour may be deferred to; a closed set."""

    FOUNDATION = "the foundation"
    BRIDGE_STDIO = "the bridge on stdio"
    REMOTE = "remote servers"
    UP = "`bascule up`"
    CHAT = "the chat door"
    PYTHON_DOORS = "the Python doors"
    APPROVALS = "approvals, ledger and secrets"
    HOSTCALLS = "hostcalls"
    SCALE_OUT = "scale-out"
    WEB_ADMIN = "web admin"
    GATEWAY = "the gateway"


@dataclass(frozen=True, slots=True)
class Shown:
    """At least one test carries the id, and would turn red without the behaviour."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """Not shown yet; ``to`` is the work that will show it."""

    to: Work


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """Asked for or named by a source, and deliberately left out."""

    reason: str


State = Shown | Deferred | NotPlanned


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One behaviour, in one sentence that a test can contradict."""

    id: str
    text: str
    source: str
    state: State

    @property
    def area(self) -> str:
        """Give the first part of the id, which names the data module too."""
        return self.id.partition(":")[0]
