"""The bodies of an invocation: what a caller asks of a task's module, and what it says and does.

Its stream has the events ``log``, ``stdout``, ``stderr`` and, at the end, ``exit``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from bascule.wire.api.tools import Milliseconds

#: ``crashed`` is a fault of the engine: the guest's process is gone, and nothing else with it.
GuestReason = Literal[
    "exited",
    "trapped",
    "out_of_fuel",
    "output_limit",
    "timeout",
    "interrupted",
    "failed",
    "crashed",
]
Argument = Annotated[str, Meta(pattern=r"^[^\0]*$", description="text without NUL")]
VariableName = Annotated[
    str, Meta(pattern=r"^[^\0=]+$", description="a name without = and without NUL")
]


class Invocation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller adds to the task's executable; all of it may be left out.

    Arguments come after those of the record; a variable that the record sets is refused. The lower
    time counts, this one or the node's. ``model`` stands in place of what the guest asks for.
    """

    args: tuple[Argument, ...] = ()
    env: Mapping[VariableName, Argument] = {}
    timeout_ms: Milliseconds | None = None
    model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class GuestLog(Struct, frozen=True, kw_only=True):
    """A line of the guest's log."""

    level: Literal["trace", "debug", "info", "warn", "error"]
    text: str


class GuestOutput(Struct, frozen=True, kw_only=True):
    """A piece of what the guest wrote: as ``text``, or as ``base64`` where it is not UTF-8."""

    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET

    @classmethod
    def of(cls, data: bytes) -> GuestOutput:
        """Return bytes as they are sent."""
        try:
            return cls(text=data.decode())
        except UnicodeDecodeError:
            return cls(base64=base64.b64encode(data).decode())

    @property
    def data(self) -> bytes:
        """Return the bytes; raise ValueError for what are none."""
        if isinstance(self.text, str):
            return self.text.encode()
        return base64.b64decode(self.base64 or b"", validate=True)


class GuestExit(Struct, frozen=True, kw_only=True):
    """How a guest ended; ``code`` is its own word where it ``exited``."""

    reason: GuestReason
    code: int = 0
    message: str = ""
    seconds: float = 0.0
    calls: int = 0
    peak_memory: int = 0
