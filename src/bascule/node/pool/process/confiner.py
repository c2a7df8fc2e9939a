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
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.sandbox import (
    BEST_FIRST,
    ROUTES_EGRESS,
    Level,
    Sandbox,
    Standing,
    acceptable,
    at_least,
)
from bascule.node.leftovers import owned_folder
from bascule.node.pool.process.ownership import hand_over
from bascule.node.pool.process.plan import Confinement, dedicated_user, draw, keeps_files
from bascule.node.pool.process.spawn import (
    Launch,
    NotConfined,
    close_all,
    locate,
    working_directory,
)
from bascule.node.pool.process.watch import Watch

if TYPE_CHECKING:
    from bascule.node.pool.process.confinement.root import Plan
    from bascule.node.pool.process.warden_link import WardenServer

TRIAL_LIMIT = 10.0  # seconds; a trial takes a few hundredths of one
_FOUND_OUT = 4  # the trial's exit status when it saw what it was not granted
_TRIAL = f'cat "$1" >/dev/null || exit 3; cat "$2" >/dev/null 2>&1 && exit {_FOUND_OUT}; exit 0'
_REMEDIES: dict[Level, str] = {
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
        self._reasons: dict[Level, str] = {}

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

    async def reason(self, level: Level) -> str:
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
        self, level: Level, launch: Launch, confinement: Confinement
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

    async def _tried(self, level: Level) -> str:
        """Exercise a level with a real child."""
        if level == "bwrap" and shutil.which("bwrap") is None:
            return f"there is no bwrap on PATH; {_REMEDIES[level]}"
        try:
            async with asyncio.timeout(TRIAL_LIMIT):
                found = await self._trial(level)
        except TimeoutError:
            found = f"the trial took longer than {TRIAL_LIMIT:.0f} s"
        except (ServerUnavailable, OSError) as fault:
            found = str(fault)
        return f"{found}; {_REMEDIES[level]}" if found else ""

    async def _trial(self, level: Level) -> str:
        with owned_folder("trial-") as folder:
            launch, confinement = await asyncio.to_thread(_trial_launch, level, folder)
            server, _ = await self._start_at(level, launch, confinement)
            try:
                status = await server.wait()
                said = os.read(server.stderr_fd, 4096) if status else b""
            finally:
                await server.end(0.0)
                close_all((server.stdin_fd, server.stdout_fd, server.stderr_fd))
        if status == _FOUND_OUT:
            return "a trial read a file that it was not granted"
        lines = said.decode(errors="replace").strip().splitlines()
        return f"a trial ended with status {status}: {' '.join(lines[-1:])}" if status else ""


def _planned(level: Level, launch: Launch, confinement: Confinement) -> tuple[Launch, str, Plan]:
    """Return the launch with its program found, where it starts, and the plan for it."""
    given = working_directory(launch)
    program = locate(launch.argv[0], launch.env, given)
    cwd = None if launch.cwd is None else given
    plan = draw(confinement, level, program, cwd, launch.env.get("PATH", os.defpath))
    if level == "bwrap":
        plan["bwrap"] = shutil.which("bwrap")
    if cwd is None:
        cwd = confinement.own[0] if keeps_files(level) else given
    return replace(launch, argv=(program, *launch.argv[1:])), cwd, plan


def _trial_launch(level: Level, folder: Path) -> tuple[Launch, Confinement]:
    for name in ("home", "granted", "secret"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name, encoding="ascii")
    files = [str(folder / name / "file") for name in ("granted", "secret")]
    script = _TRIAL if keeps_files(level) else "exit 0"
    sandbox = Sandbox(level=level, read=(str(folder / "granted"),), write=(), network="none")
    return (
        Launch(("/bin/sh", "-c", script, "trial", *files), {"PATH": os.defpath}),
        Confinement(sandbox, (str(folder / "home"),), ours=str(folder)),
    )


def possible_levels() -> tuple[Level, ...]:
    """Return the levels that can be asked about, best first."""
    return BEST_FIRST
