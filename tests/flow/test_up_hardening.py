"""What others of the same user can read of ``bascule up``: neither memory nor environment.

Root reads anything by its capabilities, and so these processes have none, whoever runs the tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.flow.processes import vanished
from tests.flow.up_process import Up, record
from tests.waits import SOON_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl and /proc are Linux's")
CANARY = f"canary-{secrets.token_hex(8)}"
#: Gives up every capability for good, may write core files, and becomes another program.
POWERLESS = """
import ctypes, os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
PAUSE = "import signal; print(1, flush=True); signal.pause()"
#: Says which processes let themselves be read.
SPY = """
import json, os, sys
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                text = b"" if name == "mem" else file.read()
        except OSError:
            continue
        found.setdefault(pid, {})[name] = sys.argv[1].encode() in text
print(json.dumps(found))
"""


async def powerless(*words: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", POWERLESS, sys.executable, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )


async def said_by(*words: str) -> tuple[int | None, str]:
    process = await powerless(*words)
    async with asyncio.timeout(SOON_SECONDS):
        out, err = await process.communicate()
    return process.returncode, out.decode() or err.decode()


@asynccontextmanager
async def serving(data: Path, folder: Path) -> AsyncGenerator[Up, None]:
    words = ("--data-dir", str(data), "--registry-dir", str(folder), "--port", "0")
    process = await powerless("-m", "bascule", "up", *words, CANARY=CANARY)
    said: list[str] = []
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SOON_SECONDS):
            while not said or not said[-1].startswith("Bascule serves at"):
                said.append((await process.stdout.readline()).decode().rstrip())
        up = Up(process, data, said)
        try:
            yield up
        finally:
            await up.http.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_no_process_of_the_same_user_reads_its_memory_or_environment(tmp_path: Path):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "own.toml").write_text(record("own"), encoding="utf-8")
    async with serving(tmp_path / "data", folder) as up:
        assert (await up.ask("POST", "/admin/api/mcp/servers/own/test", token=up.admin))[0] == 200
        control = await powerless("-c", PAUSE, CANARY=CANARY)  # as open as any other
        try:
            assert control.stdout is not None
            async with asyncio.timeout(SOON_SECONDS):
                await control.stdout.readline()
            code, said = await said_by("-c", SPY, CANARY)
        finally:
            control.kill()
            await control.wait()
        assert code == 0, said
        found: dict[str, dict[str, bool]] = json.loads(said)
        assert found.pop(str(control.pid))["environ"]
        own = {str(process.pid) for process in psutil.Process(up.process.pid).children()}
        assert own
        assert not {str(up.process.pid), *own} & set(found)
        assert [pid for pid, seen in found.items() if any(seen.values())] == []


async def test_it_writes_no_core_file_and_serves_as_ever(tmp_path: Path):
    folder = tmp_path / "mcp.d"
    folder.mkdir()
    (folder / "own.toml").write_text(record("own"), encoding="utf-8")
    async with serving(tmp_path / "data", folder) as up:
        soft, _ = psutil.Process(up.process.pid).rlimit(psutil.RLIMIT_CORE)
        assert soft == 0
        for server in ("own", "notes"):
            path = f"/admin/api/mcp/servers/{server}/test"
            status, trial = await up.ask("POST", path, token=up.admin)
            assert (status, trial["ok"]) == (200, True), trial
        assert list((up.data / "homes").glob("own/*/home"))
        code, said = await said_by("-m", "bascule", "doctor", "--registry-dir", str(folder))
        assert code == 0, said
        assert await up.end() == 0
    await vanished(str(tmp_path), seconds=SOON_SECONDS)
