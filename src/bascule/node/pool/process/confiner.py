"""Confined starts: which level works here, and a server at the best that its record accepts.

Whether a level works is tried, with a real child, at its first need; what was found holds for the
life of the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bascule.errors import LaunchDenied
from bascule.model.sandbox import (
    ROUTES_EGRESS,
    InForce,
    Level,
    Sandbox,
    Standing,
    acceptable,
    at_least,
)
from bascule.node.pool.process.ownership import hand_over
from bascule.node.pool.process.plan import Confinement, dedicated_user, draw, keeps_files
from bascule.node.pool.process.spawn import (
    Launch,
    NotConfined,
    locate,
    started_programs,
    working_directory,
)
from bascule.node.pool.process.trial import tried
from bascule.node.pool.process.watch import Watch

if TYPE_CHECKING:
    from bascule.node.pool.process.confinement.root import Plan
    from bascule.node.pool.process.warden_link import WardenServer

_REMEDIES: dict[InForce, str] = {
    "limits": "the node needs Linux and its warden",
    "landlock": "a kernel with Landlock is needed: Linux 5.13 or newer, with landlock in lsm=",
    "namespaces": (
        "unprivileged user namespaces are needed (sysctl user.max_user_namespaces above 0,"
        " kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in"
        " a container, a profile that allows them and an unmasked /proc)"
    ),
    "bwrap": "install bubblewrap (apt install bubblewrap) where user namespaces are allowed",
}

StartsServer = Callable[[Launch, str, "Plan"], Awaitable["WardenServer"]]


class Confiner:
    """Starts confined servers through a function that starts one as planned."""

    def __init__(self, start: StartsServer, watch: Watch) -> None:
        self._start = start
        self._watch = watch
        self._trying = asyncio.Lock()
        #: Why a level does not work here; "" for one that does.
        self._reasons: dict[InForce, str] = {}

    async def spawn(self, launch: Launch, confinement: Confinement) -> WardenServer:
        """Start a server at the best level its record accepts, or raise ``LaunchDenied``."""
        sandbox = confinement.sandbox
        if sandbox.network == "egress" and confinement.egress is None:
            raise LaunchDenied('sandbox.network: "egress" needs a proxy, which is not here')
        level, why = await self._level(sandbox)
        server, note = await self._start_at(level, launch, confinement)
        server.standing = Standing(
            asked=sandbox.level, in_force=level, why="; ".join(filter(None, (why, note)))
        )
        self._watch.add(server, confinement)
        return server

    async def reason(self, level: InForce) -> str:
        """Say why a level does not work here, having tried it; "" for one that does."""
        async with self._trying:
            if level not in self._reasons:
                self._reasons[level] = await self._tried(level)
            return self._reasons[level]

    async def _level(self, sandbox: Sandbox) -> tuple[Level, str]:
        """Return the level to be in force, and why it is not the one that was asked for."""
        missed: list[str] = []
        for level in acceptable(sandbox):
            if sandbox.network == "egress" and not at_least(level, ROUTES_EGRESS):
                break
            reason = await self.reason(level)
            if not reason:
                above = missed if sandbox.level != "best" or level == "limits" else []
                return level, "; ".join(above)
            missed.append(f"{level} does not work here: {reason}")
        if sandbox.network == "egress":
            missed.append('network "egress" needs namespaces or bwrap')
        raise LaunchDenied(f'sandbox.level "{sandbox.level}": {"; ".join(missed)}')

    async def _start_at(
        self, level: InForce, launch: Launch, confinement: Confinement
    ) -> tuple[WardenServer, str]:
        """Start at a level; as root as a user of its own, unless that cannot get at its files."""
        launch, cwd, plan = await asyncio.to_thread(_planned, level, launch, confinement)
        if os.geteuid() != 0:
            return await self._start(launch, cwd, plan), ""
        user = dedicated_user(confinement)
        try:
            await asyncio.to_thread(hand_over, plan["own"], user, confinement.ours)
            return await self._start(launch, cwd, {**plan, "uid": user}), ""
        except (NotConfined, OSError) as fault:
            if isinstance(fault, NotConfined) and fault.stage != "uid":
                raise
            note = f"it runs as root, without capabilities: as a user of its own, {fault}"
        with contextlib.suppress(OSError):
            await asyncio.to_thread(hand_over, plan["own"], 0, None)
        return await self._start(launch, cwd, plan), note

    async def _tried(self, level: InForce) -> str:
        """Exercise a level with a real child."""
        if level not in _REMEDIES:
            return f"there is no {level} on Linux"
        if level == "bwrap" and shutil.which("bwrap") is None:
            return f"there is no bwrap on PATH; {_REMEDIES[level]}"

        async def start(launch: Launch, confinement: Confinement) -> WardenServer:
            return (await self._start_at(level, launch, confinement))[0]

        found = await tried(level, start)
        return f"{found}; {_REMEDIES[level]}" if found else ""


def _planned(level: InForce, launch: Launch, confinement: Confinement) -> tuple[Launch, str, Plan]:
    """Return the launch with its program found, where it starts, and the plan for it."""
    given = working_directory(launch)
    program = locate(launch.argv[0], launch.env, given)
    cwd = None if launch.cwd is None else given
    programs = started_programs(launch, program, given)
    plan = draw(confinement, level, programs, cwd, launch.env.get("PATH", os.defpath))
    if level == "bwrap":
        plan["bwrap"] = shutil.which("bwrap")
    if cwd is None:
        cwd = confinement.own[0] if keeps_files(level) else given
    return replace(launch, argv=(program, *launch.argv[1:])), cwd, plan
