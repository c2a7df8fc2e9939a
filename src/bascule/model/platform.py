"""The platform record: the one that governs the whole registry.

Its denylist vetoes, its approval tightens, its ceilings bound every server's budgets.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.sandbox import Host, Level, Network, Sandbox, stricter
from bascule.model.server import (
    ApprovalMode,
    ApprovalRule,
    Budgets,
    Milliseconds,
    ToolPattern,
)

#: The greatest number that every form of a record can carry.
MOST = 2**63 - 1
#: The greatest limits that a record's sandbox can have: a floor without them bounds nothing.
MOST_MB = 1_048_576
MOST_PROCESSES = 100_000
MOST_OPEN_FILES = 1_048_576


class Ceilings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Upper bounds that no server record can raise."""

    connect_timeout_ms: Milliseconds | None = None
    list_timeout_ms: Milliseconds | None = None
    tool_timeout_ms: Milliseconds | None = None
    max_concurrency: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    max_tool_output_bytes: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    max_media_bytes: Annotated[int, Meta(ge=0, le=MOST)] | None = None

    def lower(self, budgets: Budgets) -> Budgets:
        """Return the budgets, each at most its ceiling."""
        return Budgets(
            connect_timeout_ms=_least(budgets.connect_timeout_ms, self.connect_timeout_ms),
            start_timeout_ms=budgets.start_timeout_ms,
            list_timeout_ms=_least(budgets.list_timeout_ms, self.list_timeout_ms),
            tool_timeout_ms=_least(budgets.tool_timeout_ms, self.tool_timeout_ms),
            max_concurrency=_least(budgets.max_concurrency, self.max_concurrency),
            max_tool_output_bytes=_least(budgets.max_tool_output_bytes, self.max_tool_output_bytes),
            max_media_bytes=_least(budgets.max_media_bytes, self.max_media_bytes),
        )


class SandboxFloor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The least that every local server is kept from, whatever its record says.

    A limit that is given bounds that of every record; ``build = false`` keeps all from building.
    """

    level: Level = "none"
    required: bool = False
    network: Network = "full"
    hosts: tuple[Host, ...] = ()
    memory_mb: Annotated[int, Meta(ge=64, le=MOST_MB)] | None = None
    processes: Annotated[int, Meta(ge=1, le=MOST_PROCESSES)] | None = None
    cpu_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    open_files: Annotated[int, Meta(ge=16, le=MOST_OPEN_FILES)] | None = None
    home_mb: Annotated[int, Meta(ge=1, le=MOST_MB)] | None = None
    build: bool = True

    @property
    def least(self) -> Sandbox:
        """Return it as a sandbox that grants whatever it does not bound."""
        return Sandbox(
            level=self.level,
            required=self.required,
            network=self.network,
            hosts=self.hosts,
            memory_mb=self.memory_mb or MOST_MB,
            processes=self.processes or MOST_PROCESSES,
            cpu_seconds=self.cpu_seconds,
            open_files=self.open_files or MOST_OPEN_FILES,
            home_mb=self.home_mb or MOST_MB,
            build=self.build,
        )

    def raised(self, sandbox: Sandbox) -> Sandbox:
        """Return a record's sandbox, in nothing less strict than this."""
        return stricter(sandbox, self.least)


class PlatformRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one record that governs the whole registry."""

    version: Literal[1] = 1
    tool_denylist: tuple[ToolPattern, ...] = ()
    default_approval: ApprovalMode = "never"
    rules: tuple[ApprovalRule, ...] = ()
    ceilings: Ceilings = Ceilings()
    sandbox: SandboxFloor = SandboxFloor()


def _least(value: int, ceiling: int | None) -> int:
    return value if ceiling is None else min(value, ceiling)
