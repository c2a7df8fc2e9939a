"""Turns to start: local processes that come up at once would all be slow, and late together.

As many starts as the machine can bear have a turn; the others wait, in an order that is fair to
those who ask: each session's next one in turn, however many another session wants.
"""

from __future__ import annotations

import asyncio
import os
import weakref

_STARTS_PER_CORE = 2


class Turn:
    """A place in the line, then a turn. It is given back once, whatever came of it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._granted = asyncio.get_running_loop().create_future()
        self._over = False

    @property
    def waiting(self) -> bool:
        """Say whether it is still in the line."""
        return not self._granted.done()

    async def come(self) -> None:
        """Wait until it is this one's turn."""
        await asyncio.shield(self._granted)

    def also_for(self, asker: str) -> None:
        """Let somebody else's place in the line count, too."""
        if self.waiting:
            self._turns.join(asker, self)

    def grant(self) -> None:
        """Say that its turn has come."""
        self._granted.set_result(None)

    def give_back(self) -> None:
        """Let the next one start; any number of times."""
        if not self._over:
            self._over = True
            held = self._granted.done()
            self._granted.cancel()
            self._turns.leave(self, held=held)


class Turns:
    """How many may start at once, and who is next."""

    def __init__(self, limit: int | None = None) -> None:
        self._free = limit if limit is not None else _STARTS_PER_CORE * cores()
        #: Those who ask, whose turn is next first, each with what it waits for.
        self._lines: dict[str, list[Turn]] = {}

    def ask(self, *askers: str) -> Turn:
        """Stand in the line of everybody who wants the same start."""
        turn = Turn(self)
        for asker in askers or ("",):
            self.join(asker, turn)
        self._serve()
        return turn

    def join(self, asker: str, turn: Turn) -> None:
        """Put a turn into somebody's line, once."""
        line = self._lines.setdefault(asker, [])
        if turn not in line:
            line.append(turn)

    def leave(self, turn: Turn, *, held: bool) -> None:
        """Take back a turn that is over, or a place in the line that nobody needs any more."""
        if held:
            self._free += 1
        else:
            self._remove(turn)
        self._serve()

    def _serve(self) -> None:
        while self._free > 0 and self._lines:
            asker = next(iter(self._lines))
            line = self._lines.pop(asker)
            turn = line.pop(0)
            if line:
                self._lines[asker] = line  # behind the others
            self._remove(turn)
            self._free -= 1
            turn.grant()

    def _remove(self, turn: Turn) -> None:
        self._lines = {
            asker: left
            for asker, line in self._lines.items()
            if (left := [other for other in line if other is not turn])
        }


def cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


_SHARED: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = weakref.WeakKeyDictionary()


def shared_turns() -> Turns:
    """Return the turns of all bridges on this event loop: they start on the same machine."""
    return _SHARED.setdefault(asyncio.get_running_loop(), Turns())
