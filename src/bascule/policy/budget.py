"""Budgets as values: reserve, then commit what was used or release what was not.

A call that is denied releases its reservation and burns nothing.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bascule.model.session import SessionLimits

Dimension = Literal["max_iterations", "max_total_tool_calls", "max_tool_output_bytes"]


class Exceeded(Struct, frozen=True):
    """Which limit stands in the way."""

    dimension: Dimension
    limit: int

    def __str__(self) -> str:
        return f"{self.dimension} of {self.limit} is used up"


class Budget(Struct, frozen=True, gc=False):
    """What a session has used and holds in reserve, against its limits."""

    limits: SessionLimits
    iterations: int = 0
    calls: int = 0
    reserved: int = 0
    output_bytes: int = 0

    def iterate(self) -> Budget | Exceeded:
        """Use one iteration of the loop."""
        ceiling = self.limits.max_iterations
        if ceiling is not None and self.iterations >= ceiling:
            return Exceeded("max_iterations", ceiling)
        return replace(self, iterations=self.iterations + 1)

    def reserve(self) -> Budget | Exceeded:
        """Hold room for one call."""
        ceiling = self.limits.max_total_tool_calls
        if ceiling is not None and self.calls + self.reserved >= ceiling:
            return Exceeded("max_total_tool_calls", ceiling)
        ceiling = self.limits.max_tool_output_bytes
        if ceiling is not None and self.output_bytes >= ceiling:
            return Exceeded("max_tool_output_bytes", ceiling)
        return Budget(
            self.limits, self.iterations, self.calls, self.reserved + 1, self.output_bytes
        )

    def commit(self, output_bytes: int = 0) -> Budget:
        """Turn a reservation into a call that happened."""
        self._needs_reservation()
        return Budget(
            self.limits,
            self.iterations,
            self.calls + 1,
            self.reserved - 1,
            self.output_bytes + output_bytes,
        )

    def spend(self, output_bytes: int) -> Budget:
        """Count output that a call gave."""
        return Budget(
            self.limits,
            self.iterations,
            self.calls,
            self.reserved,
            self.output_bytes + output_bytes,
        )

    def release(self) -> Budget:
        """Give a reservation back unused."""
        self._needs_reservation()
        return replace(self, reserved=self.reserved - 1)

    def _needs_reservation(self) -> None:
        if self.reserved < 1:
            raise ValueError("nothing is reserved")
