"""Other gateways in front of the floor server, each in an environment of its own.

What they are is locked in ``bench/peers``, with hashes, and installed once below ``.cache``.
"""

from __future__ import annotations

import fcntl
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bascule.clock import SYSTEM_CLOCK
from bench.machine import ROOT
from checks import npm

STATEFUL = "supergateway --stateful"
PEERS = ("mcp-proxy", "supergateway", STATEFUL, "fastmcp")
LOCKS = Path(__file__).with_name("peers")
CACHE = ROOT / ".cache"
HOST = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 10
FASTMCP_PROXY = """\
import sys
from fastmcp.server import create_proxy

port, command, script = sys.argv[1:]
server = {"command": command, "args": [script], "transport": "stdio"}
proxy = create_proxy({"mcpServers": {"floor": server}}, name="peer")
proxy.run(transport="http", host="127.0.0.1", port=int(port), show_banner=False, log_level="error")
"""
SUPERGATEWAY = CACHE / "supergateway"
SUPERGATEWAY_MAIN = SUPERGATEWAY / "node_modules" / "supergateway" / "dist" / "index.js"


def install() -> None:
    """Install all of them, unless they are there."""
    for name in ("mcp-proxy", "fastmcp"):
        _environment(name)
    npm.install(LOCKS / "supergateway", SUPERGATEWAY, SUPERGATEWAY_MAIN)


def _environment(name: str) -> None:
    home, wanted = CACHE / f"bench-{name}", (LOCKS / f"{name}.lock").read_bytes()
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"bench-{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = home / "finished"
        if finished.exists() and finished.read_bytes() == wanted:
            return
        shutil.rmtree(home, ignore_errors=True)
        uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, home], check=True)
        options = ("--quiet", "--require-hashes", "--no-build", "--compile-bytecode")
        into = ("--python", _python(name), "--requirement", LOCKS / f"{name}.lock")
        subprocess.run([uv, "pip", "install", *options, *into], check=True)
        finished.write_bytes(wanted)


def _python(name: str) -> Path:
    return CACHE / f"bench-{name}" / "bin" / "python"


def command(name: str, port: int, server: Sequence[str]) -> list[str]:
    """Say how a peer is started in front of a server on stdio."""
    if name == "mcp-proxy":
        listen = ("--host", HOST, "--port", str(port), "--log-level", "ERROR")
        return [str(_python(name)), "-m", "mcp_proxy", *listen, "--", *server]
    if name == "fastmcp":
        return [str(_python(name)), "-c", FASTMCP_PROXY, str(port), *server]
    listen = ["--outputTransport", "streamableHttp", "--port", str(port), "--logLevel", "none"]
    kept = ["--stateful"] if name == STATEFUL else []
    main = (str(npm.NODE), str(SUPERGATEWAY_MAIN))
    return [*main, "--stdio", shlex.join(server), *listen, *kept]


@contextmanager
def in_front(name: str, server: Sequence[str]) -> Generator[tuple[str, int]]:
    """Start a peer in front of a server on stdio; the URL and the process."""
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
    with subprocess.Popen(
        command(name, port, server),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_for(port, process)
            yield f"http://{HOST}:{port}/mcp", process.pid
        finally:
            _end(process)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    latest = SYSTEM_CLOCK.monotonic() + START_SECONDS
    while SYSTEM_CLOCK.monotonic() < latest:
        assert process.poll() is None, f"a peer ended before it served: {process.args}"
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            continue
        return
    raise TimeoutError(f"a peer did not serve in time: {process.args}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
