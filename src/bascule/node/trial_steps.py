"""The steps of a trial: which are taken, how long each takes, and at which one it ends."""

from __future__ import annotations

from collections.abc import Callable

from bascule.clock import Clock
from bascule.wire.api.trials import Step, TrialStep

Told = Callable[[TrialStep], None]
_ALREADY = "already connected"


def nobody(_: TrialStep) -> None:
    """Nobody follows."""


class TrialSteps:
    """Times the steps of one trial, one after another, and tells of each as it ends."""

    def __init__(self, clock: Clock, tell: Told = nobody) -> None:
        self._clock = clock
        self._tell = tell
        self._taken: dict[Step, TrialStep] = {}
        self._running: tuple[Step, float] | None = None

    @property
    def taken(self) -> tuple[TrialStep, ...]:
        """Return the steps that have ended, in their order."""
        return tuple(self._taken.values())

    def begin(self, step: Step) -> None:
        """End the step under way and begin another; a server that is started again begins anew."""
        if step == "resolve":
            self._taken.clear()
            self._running = None
        self.done()
        self._running = step, self._clock.monotonic()

    def skip(self, *steps: Step) -> None:
        """Note steps that were taken before the trial."""
        for step in steps:
            self._end(TrialStep(step=step, ok=True, duration_ms=0.0, message=_ALREADY))

    def done(self, message: str = "") -> None:
        """End the step under way, if there is one."""
        if self._running is not None:
            step, began = self._running
            self._end(
                TrialStep(step=step, ok=True, duration_ms=self._since(began), message=message)
            )

    def failed(self, words: str) -> None:
        """End the trial at the step under way, or at the first one."""
        step, began = self._running or ("resolve", self._clock.monotonic())
        self._end(TrialStep(step=step, ok=False, duration_ms=self._since(began), message=words))

    def _end(self, step: TrialStep) -> None:
        self._running = None
        self._taken[step.step] = step
        self._tell(step)

    def _since(self, began: float) -> float:
        return round((self._clock.monotonic() - began) * 1000, 3)
