"""What a guest is given by whoever runs it: a bridge, models, limits, and somebody who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Meta, Struct

from bascule.audit.metrics import Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.loop.backends import Chosen
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.node.bridge.opening import Opening
from bascule.node.contract import AnyBridge

LogLevel = Literal["trace", "debug", "info", "warn", "error"]
Stream = Literal["stdout", "stderr"]


class Output(Struct, frozen=True):
    """Bytes that a guest wrote, as it wrote them."""

    stream: Stream
    data: bytes

    @property
    def size(self) -> int:
        """Return what it counts against the limit of a guest's output."""
        return len(self.data)


class LogLine(Struct, frozen=True):
    """One line of a guest's log."""

    level: LogLevel
    text: str

    @property
    def size(self) -> int:
        """Return what it counts as it is shown: an empty line is a line too."""
        return len(f"{self.level}: {self.text}\n".encode())


#: Hears what a guest says, on the guest's thread and in its order; may block, and then the guest
#: waits.
Listener: TypeAlias = Callable[[Output | LogLine], None]


class Models(Protocol):
    """Where models are asked; ``Backends`` is one."""

    async def choose(self, model: str) -> Chosen:
        """Return the backend for a model; raise UnknownModel."""
        ...


class GuestLimits(Struct, frozen=True, kw_only=True):
    """What one guest may use. ``fuel`` counts its instructions, more or less; None is no limit."""

    seconds: Annotated[float, Meta(gt=0)] | None = None
    memory_bytes: Annotated[int, Meta(ge=65_536)] = 64 * 1024 * 1024
    output_bytes: Annotated[int, Meta(ge=0)] = 16 * 1024 * 1024
    fuel: Annotated[int, Meta(ge=1)] | None = None


class Host(Struct, frozen=True, kw_only=True, eq=False):
    """Everything a guest can reach. Without a bridge MCP is off; without models so is chat.

    ``model`` stands in place of what the guest asks for.
    """

    listener: Listener
    bridge: AnyBridge | None = None
    opening: Opening = Opening()
    models: Models | None = None
    model: str | None = None
    settings: LoopSettings = DEFAULT_SETTINGS
    limits: GuestLimits = GuestLimits()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    metrics: Metrics | None = None
    clock: Clock = SYSTEM_CLOCK
