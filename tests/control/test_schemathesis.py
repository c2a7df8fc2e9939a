"""A real ``bascule up`` against its own committed description, tried by schemathesis.

It runs as a process of its own: its plugin for pytest does not live with warnings as errors. Left
out are the watches, which do not end (test_watch.py, test_live.py, test_audit.py and
test_approval_watch.py in tests/control/api have them). The node may start nothing but the
interpreter of the demo, whatever records are made up.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bascule.asgi.reference import DOCUMENT
from tests.flow.up_process import Up, run, serving
from tests.scale import SOAK, scaled

CONFIG = Path(__file__).with_name("schemathesis.toml")
COMMAND = Path(sys.executable).with_name("schemathesis")
WATCHES = (
    *("/api/v1/mcp/watch", "/admin/api/live"),
    *("/admin/api/audit/watch", "/admin/api/approvals/watch"),
)
LEFT_OUT = tuple(word for path in WATCHES for word in ("--exclude-path", path))
#: Of the kinds, which have the same endpoints, one is enough where every value is tried by rule.
ALIKE = ("--exclude-path-regex", "^/admin/api/mcp/(tasks|profiles|backends)")
#: What is learnt from one answer is used in the next request: the token of the trial is listed.
OWN_TOKEN = ("--exclude-name", "DELETE /admin/api/tokens/{id}")
EXAMPLES = str(scaled(60))
SECONDS = 900 if SOAK else 110
PHASES = {
    "coverage": ("--phases", "coverage", *(() if SOAK else ALIKE)),
    "fuzzing": ("--phases", "fuzzing,stateful", "--max-examples", EXAMPLES, *OWN_TOKEN),
}


async def token(up: Up, *words: str) -> str:
    code, out, err = await run("tokens", "create", *words, "--data-dir", str(up.data))
    assert code == 0, err
    return out.strip()


async def tried(url: str, admin: str, client: str, folder: Path, *words: str) -> tuple[int, str]:
    """Run schemathesis; return its exit code and what it says."""
    process = await asyncio.create_subprocess_exec(
        str(COMMAND),
        *("--config-file", str(CONFIG), "run", str(DOCUMENT), "--url", url, "--no-color"),
        *("--header", f"Authorization: Bearer {admin}", *LEFT_OUT),
        *("--generation-deterministic", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "CLIENT_TOKEN": client},
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.parametrize("phase", PHASES)
async def test_the_process_keeps_what_its_description_promises(tmp_path: Path, phase: str):
    executables = {"BASCULE_NODE_EXECUTABLES": sys.executable}
    agents = tmp_path / "agents.toml"
    agents.write_text("[[agents]]\nid = 'main'\n", encoding="utf-8")
    tasks = tmp_path / "mcp.d" / "tasks"
    tasks.mkdir(parents=True)
    # A file's task is there to the end, whatever is tried.
    text = 'task_id = "kept"\n[mcp]\nenabled = true\ndefault_server_ids = ["notes"]\n'
    (tasks / "kept.toml").write_text(text, encoding="utf-8")
    words = ("--agents", str(agents), "--registry-dir", str(tasks.parent))
    async with serving(tmp_path / "data", *words, **executables) as up:
        assert up.process.stderr is not None
        log = asyncio.ensure_future(up.process.stderr.read())  # a full pipe would hold it up
        admin = await token(up, "--role", "admin")
        client = await token(up, "--role", "client", "--task", "kept")
        code, said = await tried(up.url, admin, client, tmp_path, *PHASES[phase])
        assert code == 0, said
        for who, path in ((admin, "/admin/api/mcp/servers"), (client, "/api/v1/tools")):
            status, answer = await up.ask("GET", path, token=who)
            assert status == 200, answer
        assert await up.end() == 0
        assert b"Traceback" not in await log
