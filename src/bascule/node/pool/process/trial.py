"""The trial of a level: a real child that reads a file it was granted and one it was not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from bascule.errors import ServerUnavailable
from bascule.model.sandbox import InForce, Sandbox
from bascule.node.leftovers import owned_folder
from bascule.node.pool.process.plan import Confinement, keeps_files
from bascule.node.pool.process.spawn import Launch, ServerProcess, close_all

TRIAL_LIMIT = 10.0  # seconds; a trial takes a few hundredths of one
_FOUND_OUT = 4  # the trial's exit status when it saw what it was not granted
_TRIAL = f'cat "$1" >/dev/null || exit 3; cat "$2" >/dev/null 2>&1 && exit {_FOUND_OUT}; exit 0'

#: Starts a trial at the level that it is about.
StartsTrial: TypeAlias = Callable[[Launch, Confinement], Awaitable[ServerProcess]]


async def tried(level: InForce, start: StartsTrial) -> str:
    """Exercise a level with a real child; say what went wrong, "" if nothing did."""
    try:
        async with asyncio.timeout(TRIAL_LIMIT):
            return await _trial(level, start)
    except TimeoutError:
        return f"the trial took longer than {TRIAL_LIMIT:.0f} s"
    except (ServerUnavailable, OSError) as fault:
        return str(fault)


async def _trial(level: InForce, start: StartsTrial) -> str:
    with owned_folder("trial-") as folder:
        launch, confinement = await asyncio.to_thread(_trial_launch, level, folder)
        server = await start(launch, confinement)
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


def _trial_launch(level: InForce, folder: Path) -> tuple[Launch, Confinement]:
    for name in ("home", "granted", "secret"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name, encoding="ascii")
    files = [str(folder / name / "file") for name in ("granted", "secret")]
    script = _TRIAL if keeps_files(level) else "exit 0"
    sandbox = Sandbox(read=(str(folder / "granted"),), write=(), network="none")
    return (
        Launch(("/bin/sh", "-c", script, "trial", *files), {"PATH": os.defpath}),
        Confinement(sandbox, (str(folder / "home"),), ours=str(folder)),
    )
