"""What a conversation may spend, and what it has spent.

Room is reserved before a call and committed after it; a call that was denied burns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.model.code import CODES
from bascule.model.json import JsonObject, JsonValue
from bascule.model.outcome import Failure, Outcome, failure
from bascule.model.session import SessionLimits
from bascule.model.task import TaskBudgets
from bascule.policy.budget import Budget, Exceeded

BudgetName = Literal[
    "max_iterations", "max_total_tool_calls", "max_output_bytes", "max_seconds", "max_repeats"
]


# What was refused before it reached a tool costs nothing.
class LoopSettings(Struct, frozen=True, kw_only=True):
    """The budgets of one conversation, and how its results are shown.

    ``max_repeats`` is how often in a row the same call may be asked for: the last time it is not
    made any more. ``approval_wait_seconds`` is how long a call waits for somebody until its turn is
    parked. ``always_json`` gives the model every result as JSON. ``show_activity`` writes into the
    answer which tools were used; ``show_calls`` tells what they are given and what they answer.
    """

    max_iterations: int = 8
    max_total_tool_calls: int = 32
    max_output_bytes: int = 1024 * 1024
    max_seconds: float = 300.0
    max_repeats: int = 3
    approval_wait_seconds: float = 60.0
    always_json: bool = False
    show_activity: bool = False
    show_calls: bool = False

    def within(self, limits: SessionLimits) -> LoopSettings:
        """Return the settings, none of their budgets above these limits."""
        return replace(
            self,
            max_iterations=_least(self.max_iterations, limits.max_iterations),
            max_total_tool_calls=_least(self.max_total_tool_calls, limits.max_total_tool_calls),
            max_output_bytes=_least(self.max_output_bytes, limits.max_tool_output_bytes),
        )

    def of_task(self, budgets: TaskBudgets) -> LoopSettings:
        """Return the settings for a task: it lowers budgets, and chooses the form of results."""
        limits = SessionLimits(
            max_iterations=budgets.max_iterations,
            max_total_tool_calls=budgets.max_total_tool_calls,
        )
        form = budgets.tool_output
        always_json = self.always_json if form is None else form == "always_json"
        return replace(self.within(limits), always_json=always_json)


DEFAULT_SETTINGS = LoopSettings()


def _least(value: int, ceiling: int | None) -> int:
    return value if ceiling is None else min(value, ceiling)


class Spent(Struct, frozen=True, kw_only=True):
    """What a conversation had used when it was parked."""

    iterations: int = 0
    calls: int = 0
    output_bytes: int = 0
    hit: BudgetName | None = None
    #: How often each call was asked for in a row.
    streaks: Mapping[str, int] = {}


class Spending:
    """What one conversation has used. ``hit`` is the budget that ended it, if one did."""

    def __init__(self, settings: LoopSettings) -> None:
        self.settings = settings
        self.hit: BudgetName | None = None
        self._streaks: dict[bytes, int] = {}
        self._before: dict[bytes, int] = {}
        self.used = Budget(
            SessionLimits(
                max_iterations=settings.max_iterations,
                max_total_tool_calls=settings.max_total_tool_calls,
                max_tool_output_bytes=settings.max_output_bytes,
            )
        )

    @property
    def output_left(self) -> int:
        """Return how much the tools may still say."""
        return max(0, self.settings.max_output_bytes - self.used.output_bytes)

    def next_turn(self) -> bool:
        """Begin another turn, unless a budget is used up."""
        if self.hit is not None:
            return False
        budget = self.used.iterate()
        if isinstance(budget, Exceeded):
            self.hit = "max_iterations"
            return False
        self.used = budget
        self._before, self._streaks = self._streaks, {}
        return True

    def take(self, name: str, arguments: JsonObject) -> Failure | None:
        """Reserve room for a call, or say which budget stands in its way."""
        repeated = self._repeated(name, arguments)
        if repeated >= self.settings.max_repeats:
            self.hit = self.hit or "max_repeats"
            return failure(
                "mcp_budget_exceeded",
                f"the same call was asked for {repeated} times in a row and is not made again: "
                "use the results you have",
            )
        budget = self.used.reserve()
        if isinstance(budget, Exceeded):
            spent: BudgetName = (
                "max_total_tool_calls"
                if budget.dimension == "max_total_tool_calls"
                else "max_output_bytes"
            )
            self.hit = self.hit or spent
            return failure("mcp_budget_exceeded", f"{spent} of {budget.limit} is used up")
        self.used = budget
        return None

    def take_again(self) -> Failure | None:
        """Reserve room for a call that was asked for before, and waited for approval."""
        budget = self.used.reserve()
        if isinstance(budget, Exceeded):
            return failure("mcp_budget_exceeded", str(budget))
        self.used = budget
        return None

    def spent(self) -> Spent:
        """Return what was used, so that a conversation can go on with it."""
        used = self.used
        return Spent(
            iterations=used.iterations,
            calls=used.calls,
            output_bytes=used.output_bytes,
            hit=self.hit,
            streaks={key.decode(): count for key, count in self._streaks.items()},
        )

    def resume(self, spent: Spent) -> None:
        """Go on with what was used before."""
        self.hit = spent.hit
        self.used = replace(
            self.used,
            iterations=spent.iterations,
            calls=spent.calls,
            output_bytes=spent.output_bytes,
        )
        self._streaks = {key.encode(): count for key, count in spent.streaks.items()}

    def settle(self, outcome: Outcome, output_bytes: int) -> None:
        """Count a call that has ended; what never reached a tool is given back."""
        if outcome.error is not None and not CODES[outcome.error.code].reached:
            self.used = self.used.release()
        else:
            self.used = self.used.commit(output_bytes)

    def plain(self, seconds: float) -> dict[str, JsonValue]:
        """Return what was used of what, for whoever asked."""
        settings = self.settings
        return {
            "iterations": {"used": self.used.iterations, "limit": settings.max_iterations},
            "tool_calls": {"used": self.used.calls, "limit": settings.max_total_tool_calls},
            "output_bytes": {"used": self.used.output_bytes, "limit": settings.max_output_bytes},
            "seconds": {"used": round(seconds, 3), "limit": settings.max_seconds},
        }

    def _repeated(self, name: str, arguments: JsonObject) -> int:
        """Return how often a call was asked for, in this turn and those right before it."""
        key = name.encode() + b" " + msgspec.json.encode(arguments, order="sorted")
        self._streaks[key] = (self._streaks.get(key) or self._before.get(key, 0)) + 1
        return self._streaks[key]
