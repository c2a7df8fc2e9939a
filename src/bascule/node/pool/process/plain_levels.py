"""Levels of isolation without a warden: macOS's own sandbox, and limits that the shell sets."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from bascule.errors import LaunchDenied
from bascule.model.sandbox import InForce, Level, Sandbox, Standing, at_least
from bascule.node.pool.process.confinement import seatbelt
from bascule.node.pool.process.plan import Confinement, draw
from bascule.node.pool.process.spawn import (
    Launch,
    ServerProcess,
    started_programs,
    working_directory,
)
from bascule.node.pool.process.trial import tried

MAC: Final = "darwin"
_NO_WARDEN = "nothing more than limits works here: no warden can start"
_NO_EGRESS = 'network "egress" needs namespaces or bwrap'

StartsPlain = Callable[[Launch], Awaitable[ServerProcess]]


class PlainLevels:
    """Confines launches as well as a system can that has no warden.

    ``start`` starts one as it stands. On a Mac ``best`` is ``seatbelt``, if a trial shows that it
    works; elsewhere there are limits.
    """

    def __init__(
        self, start: StartsPlain, platform: str = sys.platform, program: str = seatbelt.PROGRAM
    ) -> None:
        self._start = start
        self._mac = platform == MAC
        self._program = program
        self._trying = asyncio.Lock()
        self._reason: str | None = None

    @property
    def possible(self) -> tuple[InForce, ...]:
        """The levels that there are here, best first."""
        return ("seatbelt", "limits") if self._mac else ("limits",)

    async def reason(self, level: InForce) -> str:
        """Say why a level does not work here, having tried it; "" for one that does."""
        if level in ("none", "limits"):
            return ""
        if not self._mac:
            return _NO_WARDEN
        if level != "seatbelt":
            return f'there is no {level} on macOS; level "best" is seatbelt here'
        async with self._trying:
            if self._reason is None:
                self._reason = await self._tried()
            return self._reason

    async def confined(
        self, launch: Launch, confinement: Confinement, cwd: str | None
    ) -> tuple[Launch, Standing]:
        """Return a launch at the best level its record accepts, or raise ``LaunchDenied``.

        Its program is an absolute path; ``cwd`` is the record's own, absolute.
        """
        sandbox = confinement.sandbox
        in_force, why = await self._level(sandbox)
        if in_force == "seatbelt":
            launch = await asyncio.to_thread(self._inside, launch, confinement, cwd)
        standing = Standing(asked=sandbox.level, in_force=in_force, why=why)
        return _limited(launch, sandbox), standing

    async def _level(self, sandbox: Sandbox) -> tuple[InForce, str]:
        """Return the level to be in force, and why it is not the one that was asked for."""
        asked: Level = sandbox.level
        if not at_least(asked, "landlock"):
            return "limits", ""
        if sandbox.network == "egress":
            raise LaunchDenied(f'sandbox.level "{asked}": {_NO_EGRESS}')
        reasons = [] if asked == "best" else [await self.reason(asked)]
        missing = await self.reason("seatbelt")
        if missing and missing not in reasons:
            reasons.append(f"seatbelt: {missing}" if self._mac else missing)
        why = "; ".join(reasons)
        if sandbox.required and reasons:
            raise LaunchDenied(f'sandbox.level "{asked}": {why}')
        return ("limits" if missing else "seatbelt"), why

    def _inside(self, launch: Launch, confinement: Confinement, cwd: str | None) -> Launch:
        path = launch.env.get("PATH", os.defpath)
        programs = started_programs(launch, launch.argv[0], working_directory(launch))
        plan = draw(confinement, "seatbelt", programs, cwd, path)
        argv = seatbelt.command(plan, launch.argv, self._program)
        return replace(launch, argv=tuple(argv), cwd=cwd or plan["own"][0])

    async def _tried(self) -> str:
        if not os.access(self._program, os.X_OK):
            return f"there is no {self._program}, which comes with macOS"

        async def start(launch: Launch, confinement: Confinement) -> ServerProcess:
            return await self._start(
                await asyncio.to_thread(self._inside, launch, confinement, None)
            )

        return await tried("seatbelt", start)


def _limited(launch: Launch, sandbox: Sandbox) -> Launch:
    """Return a launch whose limits the shell sets before it becomes the program."""
    steps = ["ulimit -c 0", f"ulimit -n {sandbox.open_files}"]
    if sandbox.cpu_seconds is not None:
        steps.append(f"ulimit -t {sandbox.cpu_seconds}")
    script = "; ".join([*steps, 'exec "$0" "$@"'])
    return replace(launch, argv=("/bin/sh", "-c", script, *launch.argv))
