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
        self.running: dict[str, ToolStarted] = {}
        self.last: deque[ToolCompleted] = deque(maxlen=keep)

    def heard(self, tell: OnEvent) -> OnEvent:
        """Return a listener that notes calls before it passes events on."""

        def note(event: ManagerEvent) -> None:
            if isinstance(event, ToolStarted):
                self.running[event.call_id] = event
            elif isinstance(event, ToolCompleted):
                self.running.pop(event.call_id, None)
                self.last.appendleft(event)
            tell(event)

        return note
