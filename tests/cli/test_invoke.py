"""``bascule tasks invoke``: a real node runs a task's module, and takes it along when it dies."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from bascule.client.guests import GuestsClient
from bascule.client.http import ApiClient
from tests.cli.served import Served, served
from tests.doors.hostcalls.invoking import ENDLESS, TALKING, first, module
from tests.doors.hostcalls.wat import call, guest
from tests.waits import ended

#: Asks whichever model there is, and shows its answer.
CHATTING = guest(
    call("cchat_create"),
    call("cchat_write_msg", "$0", 0, 4, 8, 2),
    call("cchat_send", "$0", 2),
    call("cchat_recv", "$2", 1024, 16),
    data={0: b"user", 8: b"hi", 16: 4096},
    shown=(1024, 2048),
)


@pytest.mark.requirement("hostcalls:invoke")
def test_a_node_runs_the_module_of_a_task_and_does_not_leave_it_behind(tmp_path: Path):
    config = tmp_path / "bascule.toml"
    config.write_text("[chat]\nmax_iterations = 5\n", encoding="utf-8")
    with served(tmp_path / "data", "--empty", "--config", str(config)) as up:
        assert up("tasks", "add", "t").code == 0
        none = up("tasks", "invoke", "t")
        assert (none.code, "executable.path=" in none.err) == (2, True)
        up.json("tasks", "set", "t", f"executable.path={module(tmp_path, TALKING)}")
        done = up("tasks", "invoke", "t", "--arg", "a", "--env", "B=2")
        assert (done.code, done.out) == (21, "hello")
        assert "info: hello" in done.err

        up.json("tasks", "set", "t", f"executable.path={module(tmp_path, CHATTING)}")
        talked = up("tasks", "invoke", "t", "--model", "rehearsal", "--json")
        assert '"role":"assistant"' in talked.out
        assert '"iterations":{"used":1,"limit":5}' in talked.out  # the node's, not the usual 8
        assert json.loads(talked.out.splitlines()[-1])["exit"] == 0

        up.json("tasks", "set", "t", f"executable.path={module(tmp_path, ENDLESS)}")
        assert up("tasks", "invoke", "t", "--timeout", "0.05").code == 124
        token = up.json("tokens", "create", "--role", "client", "--task", "t")["token"]
        asyncio.run(_dies_with(up, token))


async def _dies_with(up: Served, token: str) -> None:
    async with ApiClient(up.url, token) as api, aclosing(GuestsClient(api).invoke("t")) as stream:
        await first(stream)
        [guest] = _guests_of(up.serving.pid)
        up.serving.kill()
        await ended(guest)


def _guests_of(node: int) -> list[int]:
    """Return the processes of a node's guests."""
    found = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [int(path.name) for path in found if _is_guest(path, node)]


def _is_guest(path: Path, node: int) -> bool:
    try:
        parent = int((path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        return parent == node and b"guest_child" in (path / "cmdline").read_bytes()
    except OSError:
        return False
