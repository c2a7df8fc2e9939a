"""``bascule up`` as a real process that serves the page, and the ways into it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bascule.auth.links import make_link
from bascule.auth.token_request import TokenRequest
from bascule.auth.token_store import open_tokens
from bascule.model.role import Role
from tests.flow.up_process import Up
from tests.waits import until

_SERVES = "Bascule serves at"


class Site(Up):
    """A process, its API (``ask``, ``get``, ``call``), and links to its page."""

    async def code(
        self, role: Role = "admin", *, person: str | None = None, task: str | None = None
    ) -> str:
        """Make the code of a link, as ``bascule web`` does."""
        wanted = TokenRequest(name=f"link of {role}", role=role, person=person, task_id=task)
        async with open_tokens(self.data) as tokens:
            return (await make_link(tokens, wanted, by="tests")).token

    def link(self, code: str) -> str:
        """Return the address of the page with a code."""
        return f"{self.url}/admin/#code={code}"

    async def end_session(self, token: str | None) -> None:
        """End the token of a page, as another window of it would."""
        status, answer = await self.ask("POST", "/admin/api/logout", token=token)
        assert status == 200, answer

    async def revoke(self, code: str) -> None:
        """End the code of a link, as ``bascule tokens revoke`` does."""
        async with open_tokens(self.data) as tokens:
            record = await tokens.look_up(code)
            assert record is not None
            assert await tokens.revoke(record.id, by="tests")

    async def sign_in(
        self, role: Role = "admin", *, person: str | None = None, task: str | None = None
    ) -> str:
        """Exchange a new link for a token of the page, without a browser."""
        code = await self.code(role, person=person, task=task)
        status, answer = await self.ask("POST", "/admin/api/login", body={"code": code})
        assert status == 200, answer
        return answer["token"]


@asynccontextmanager
async def serving(
    data: Path, *words: str, port: int = 0, command: Sequence[str] = ("up",)
) -> AsyncGenerator[Site]:
    """Start a process that serves, and end it with the block; what it says goes into a file."""
    said = data.with_name(f"{data.name}.said")
    options = ("--port", str(port), "--data-dir", str(data), *words)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BASCULE_")}
    with said.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bascule", *command, *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=clean,
        )
    try:
        site = Site(process, data, await _lines(said, process))
        try:
            yield site
        finally:
            await site.http.close()
            if process.returncode is None:
                await site.end()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _lines(said: Path, process: asyncio.subprocess.Process) -> list[str]:
    """Wait until it serves; return what it said until then."""

    def looked() -> list[str]:
        assert process.returncode is None, said.read_text(encoding="utf-8")
        lines = said.read_text(encoding="utf-8").splitlines(keepends=True)
        ends = [n for n, line in enumerate(lines) if line.startswith(_SERVES) and line[-1] == "\n"]
        return [line.rstrip("\n") for line in lines[: ends[0] + 1]] if ends else []

    return await until(looked)
