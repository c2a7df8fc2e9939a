"""A person at a terminal: gives commands, types in those that are printed, reads the answers."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path

import pytest
from msgspec import Struct

from bascule.cli.command_line import program
from tests.cli.served import FOUND_BY, command

#: Generous: a machine may be busy with other things.
SECONDS = 60


class Seen(Struct, frozen=True):
    """What a person sees of one command."""

    code: int | None
    out: str
    err: str

    @property
    def commands(self) -> list[str]:
        """The commands that were printed to be typed next."""
        name = program()
        lines = [line.partition("    #")[0] for line in f"{self.out}{self.err}".splitlines()]
        return [f"{name} {line.partition(f'{name} ')[2]}" for line in lines if f"{name} " in line]


class Terminal:
    """One terminal, in some folder, with a data directory that commands find by themselves."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        usual = {name: v for name, v in os.environ.items() if not name.startswith("BASCULE_")}
        self._env = {**usual, "BASCULE_DATA_DIR": str(data)}

    async def __call__(self, words: str) -> Seen:
        """Give a command of ``bascule``: in this process, which does not have to start again."""
        return await asyncio.to_thread(self._give, words)

    def _give(self, words: str) -> Seen:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name in FOUND_BY:
                patch.delenv(name, raising=False)
            done = command(*shlex.split(words), BASCULE_DATA_DIR=self._env["BASCULE_DATA_DIR"])
        return Seen(done.code, done.out, done.err)

    async def works(self, words: str) -> str:
        """Give a command that has to work; return what it prints."""
        seen = await self(words)
        assert seen.code == 0, (words, seen.err)
        return seen.out

    async def type_in(self, line: str) -> Seen:
        """Type a whole line into a shell, as it was printed."""
        shell = await asyncio.create_subprocess_shell(
            line,
            cwd=self.folder,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await shell.communicate()
        except BaseException:
            shell.kill()
            raise
        return Seen(shell.returncode, out.decode(), err.decode())
