"""Whose files count where each replica has a copy of them.

Copies should be equal, and are not while they are being replaced, or when somebody forgot one. Then
the copy that changed last counts: a replica whose own did not change leaves the registry alone,
says so, and takes over when nobody who is alive has what was loaded. Of replicas with equal copies
one loads.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.control.registry.duties import Duties, FileCopy
from bascule.control.registry.loader import Loader
from bascule.control.registry.written import Written
from bascule.db.errors import StoreUnavailable
from bascule.errors import BasculeError

#: A replica that did not look at its files for so long is gone; it looks every 30 seconds.
ALIVE_SECONDS = 90.0
#: How long to wait for another replica that loads, and how often to ask.
TURN_SECONDS = 10.0
_AGAIN_SECONDS = 0.5


class Verdict(Struct, frozen=True):
    """Whether a replica loads its copy; if it must not, why, and what to do."""

    loads: bool
    trouble: str | None = None


def judge(me: str, digest: str, copies: Sequence[FileCopy], now: float) -> Verdict:
    """Decide whether a replica with this copy loads it."""
    last = max(copies, key=lambda copy: copy.load, default=None)
    if last is None or not last.load or last.replica == me:
        return Verdict(loads=True)
    alive = [copy for copy in copies if now - copy.seen_at <= ALIVE_SECONDS]
    if last.digest == digest:
        return Verdict(loads=last not in alive)
    before = next((copy.digest for copy in copies if copy.replica == me), digest)
    others = [copy for copy in alive if copy.replica != me and copy.digest == last.digest]
    if before != digest or not others:
        return Verdict(loads=True)
    return Verdict(
        loads=False,
        trouble=f"the files of replica {me!r} are not those that replica {last.replica!r} loaded, "
        "and its own are left out: make the copies equal; a copy that changes is loaded",
    )


class FileTurns:
    """Loads a replica's files when they count."""

    def __init__(self, loader: Loader, duties: Duties, clock: Clock = SYSTEM_CLOCK) -> None:
        self.loader = loader
        self._duties = duties
        self._clock = clock
        #: Why the own files do not count now, if so.
        self.trouble: str | None = None

    async def load(self) -> Written:
        """Load, or leave the registry as it is; raise as ``Loader.load`` does.

        Raise StoreUnavailable where another replica takes very long to load.
        """
        until = self._clock.monotonic() + TURN_SECONDS
        while self._clock.monotonic() < until:
            async with self._duties.mine("files") as mine:
                if mine:
                    return await self._load()
            await self._clock.sleep(_AGAIN_SECONDS)
        raise StoreUnavailable("another replica is loading its files, and does not end")

    async def _load(self) -> Written:
        copies, now = await self._duties.copies(), self._clock.now()
        if not self.loader.paths:  # what it brings is nobody's copy, and gives way to all
            others = any(now - copy.seen_at <= ALIVE_SECONDS for copy in copies)
            return self.loader.untouched() if others else await self.loader.load()
        mine = next((copy for copy in copies if copy.replica == self._duties.replica), None)
        try:
            digest = await self.loader.digest()
            verdict = judge(self._duties.replica, digest, copies, now)
            written = await self.loader.load() if verdict.loads else self.loader.untouched()
        except BasculeError:
            if mine is not None:  # what it loaded before still counts
                await self._duties.keep_copy(replace(mine, seen_at=now))
            raise
        self.trouble = verdict.trouble
        load = 0 if mine is None else mine.load
        if verdict.loads:
            load = 1 + max((copy.load for copy in copies), default=0)
        await self._duties.keep_copy(
            FileCopy(replica=self._duties.replica, digest=digest, seen_at=now, load=load)
        )
        if verdict.trouble is None:
            return written
        return replace(written, problems=(verdict.trouble, *written.problems))
