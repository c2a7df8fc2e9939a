"""Servers as real processes: they start as asked, and nobody is left, whoever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import uvloop
from tests.scale import scaled

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import ServerUnavailable
from bascule.node.pool.transport.plain import PlainSpawner
from bascule.node.pool.transport.spawn import Launch, ServerProcess, Spawner
from bascule.node.pool.transport.warden import Warden
from bascule.node.pool.transport.warden_process import MARKER, Frames, pack

PATH = {"PATH": os.environ["PATH"]}

# Ignores SIGTERM, as do its child, its detached grandchild and one more without environment.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def linger():
    while True:
        signal.pause()
def detach():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True
if os.fork() == 0:
    linger()
told, tell = os.pipe()
if detach():
    os.write(tell, b"%d " % os.getpid())
    linger()
if "scrub" in sys.argv and detach():
    os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; echo >&%d; exec sleep 1000" % 9], {})
os.read(told, 99)
os.write(1, b"ready\\n")
if "leave" in sys.argv:
    os._exit(3)
linger()
"""

NODE = """
import asyncio, json, os, sys
from bascule.node.pool.transport.plain import PlainSpawner
from bascule.node.pool.transport.spawn import Launch
from bascule.node.pool.transport.warden import Warden
kind, argv = sys.argv[1], json.loads(sys.argv[2])
MAKE = {
    "isolated": lambda: Warden(isolate_pids=True),
    "shared": lambda: Warden(isolate_pids=False),
    "auto": Warden,
    "plain": PlainSpawner,
}
async def main():
    spawner = MAKE[kind]()
    server = await spawner.spawn(Launch(tuple(argv), {}))
    os.set_blocking(server.stdout_fd, True)
    os.read(server.stdout_fd, 99)
    if "fork" in sys.argv and os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "0"]) if False else os.read(os.pipe()[0], 1)
    print(json.dumps({
        "owner": spawner._owner.prefix, "server": server.pid,
        "warden": getattr(spawner, "pid", None), "isolated": getattr(spawner, "isolated", False),
    }), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
