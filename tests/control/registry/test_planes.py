"""The control plane starts no server process and calls no tool: it could not if it wanted to."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bascule.control
from bascule.control.registry.service import RegistryService
from bascule.control.registry.status import NodeReport
from tests.control.registry.build import BY, server

FORBIDDEN = (
    "bascule.node",
    "bascule.loop",
    "bascule.doors",
    "mcp",
    "subprocess",
    "multiprocessing",
)
STARTS = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.requirement("registry:no-execution")
def test_no_module_of_the_control_plane_can_start_a_process_or_call_a_tool():
    [folder] = bascule.control.__path__
    modules = sorted(Path(folder).rglob("*.py"))
    assert modules
    reached = {name for path in modules for name in imported(path)}
    assert not [n for n in reached if any(n == f or n.startswith(f + ".") for f in FORBIDDEN)]


@pytest.mark.requirement("registry:no-execution")
async def test_registering_a_server_starts_nothing(service: RegistryService, tmp_path: Path):
    started: list[str] = []
    watching = True

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        del arguments
        if watching and event in STARTS:
            started.append(event)

    sys.addaudithook(audit)
    command = {"command": "touch", "args": [str(tmp_path / "ran")]}
    await service.create("server", server("fs", stdio=command, prewarm=True), BY)
    await service.standing.report(NodeReport(node="n", revision=1))
    await service.delete("server", "fs", BY)
    watching = False
    assert started == []
    assert not (tmp_path / "ran").exists()
