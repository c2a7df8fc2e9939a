"""Sections that nobody disconnects: at the end of a program, and in a forked process.

Each case is a program of its own, which must end soon, say nothing on stderr and leave no server
and no folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bascule.testing import ScriptedServer
from tests.section.section_servers import starts_of

BEGINNING = """
import atexit, gc, os, sys, threading
from bascule.section import *

def made():
    transport = StdioTransport(command=sys.argv[1], args=tuple(sys.argv[2:]))
    servers = [McpServerConfig(name="a", transport=transport, timeout=5)]
    return McpIntegrationSection(servers=servers, session=Session(), connect_on_init=True)

def called(section):
    tools = {tool.name: tool for tool in section.tools()}
    return tools["a_echo"].run({"text": "x"}, context=section.context())

section = made()
"""
FORK = """
child = os.fork()
if child == 0:
    {child}
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert called(section).success
section.disconnect()
"""
ENDS = {
    "forgotten": "",
    "disconnected at exit": "atexit.register(section.disconnect)",
    "disconnected by a finaliser": """
class Holder:
    def __init__(self, held): self.held = held
    def __del__(self): self.held.disconnect()
holder = Holder(section)
""",
    "a call under way": """
never = {tool.name: tool for tool in section.tools()}["a_never"]
threading.Thread(
    target=lambda: never.run({}, context=section.context()), daemon=True
).start()
""",
    "forked and forgotten": FORK.format(child=""),
    "forked and collected": FORK.format(child="del section; gc.collect()"),
    "forked and disconnected": FORK.format(child="section.disconnect()"),
    "forked and used": FORK.format(
        child="""
    try: called(section)
    except McpConnectionError as error: assert "another process" in str(error)
    else: sys.exit(1)
"""
    ),
    "forked, and a section of its own": FORK.format(child="assert called(made()).success"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_program_ends_and_leaves_nothing(end: str, tmp_path: Path) -> None:
    folder, starts = tmp_path / "tmp", tmp_path / "starts"
    folder.mkdir()
    server = ScriptedServer(behaviours={"echo": "echo", "never": "never"}, starts=starts)
    command, args = server.command
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGINNING + end, command, *args],
        env={"TMPDIR": str(folder), "PYTHONPATH": ":".join(filter(None, sys.path))},
        timeout=20,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert starts_of(starts) >= 1
    assert list(folder.iterdir()) == []
    marked = [p for p in psutil.process_iter(["cmdline"]) if str(starts) in str(p.info["cmdline"])]
    assert psutil.wait_procs(marked, timeout=5)[1] == []
