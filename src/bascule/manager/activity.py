"""What an agent's tools are doing, and what they did last, for its status block.

Names and durations alone are kept: no argument, no result.
"""

from __future__ import annotations

from collections import deque

from bascule.manager.events import ManagerEvent, OnEvent, ToolCompleted, ToolStarted

MAX_LAST = 5


class Activity:
    """The calls that run, oldest first, and the last ones that ended, newest first."""

    def __init__(self, *, keep: int = MAX_LAST) -> None:
        self._running: dict[str, ToolStarted] = {}
        self._last: deque[ToolCompleted] = deque(maxlen=keep)

    @property
    def running(self) -> tuple[ToolStarted, ...]:
        """Return the calls that have not ended."""
        return tuple(self._running.values())

    @property
    def last(self) -> tuple[ToolCompleted, ...]:
        """Return the calls that ended last."""
        return tuple(self._last)

    def heard(self, tell: OnEvent) -> OnEvent:
        """Return a listener that notes calls before it passes events on."""

        def note(event: ManagerEvent) -> None:
            if isinstance(event, ToolStarted):
                self._running[event.call_id] = event
            elif isinstance(event, ToolCompleted):
                self._running.pop(event.call_id, None)
                self._last.appendleft(event)
            tell(event)

        return note
