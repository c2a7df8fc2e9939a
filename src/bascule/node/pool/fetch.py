"""Fetching what a launcher starts, before it is started where it may not reach the network.

The fetch has a HOME of its own, so that nothing a server wrote into its HOME configures it. What
it brings lies in the caches that the server's own launcher looks into, one copy for each server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from bascule.errors import ServerUnavailable
from bascule.model.fetch_line import FetchLine
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch, ServerProcess, Spawner
from bascule.node.trees import remove_tree

logger = logging.getLogger(__name__)

_TARGET = "fetched"
#: What a launcher says is for a message: the end of it is enough.
_SAID_BYTES = 64 * 1024
_SHOWN = 600
_LOCK_BYTES = 16 * 1024 * 1024
#: Variables of a record that are for its launcher: the platform's word, not a server's.
_LAUNCHERS_OWN = ("UV_", "PIP_", "NPM_CONFIG_", "npm_config_")
#: Where each keeps what it fetched, below HOME.
_CACHES = {"uvx": ("UV_CACHE_DIR", ".cache/uv"), "npx": ("npm_config_cache", ".npm")}


class Package(Struct, frozen=True, order=True):
    """One package that was fetched, with a digest of what is in it."""

    name: str
    version: str
    digest: str


class _Locked(Struct):
    version: str = ""
    integrity: str = ""


class _Lock(Struct):
    """What npm notes of the packages that it unpacked."""

    packages: dict[str, _Locked] = {}


async def fetch(
    spawner: Spawner, line: FetchLine, server: Launch, base: Mapping[str, str], seconds: float
) -> tuple[Package, ...]:
    """Fetch what a server is made of; raise ServerUnavailable with what the launcher said.

    ``server`` is what will be started, ``base`` the environment that every server of the node has.
    The fetch is confined as the server is, but for the network, and is granted none of its files.
    """
    env = _environment(line, server, base)
    process = await spawner.spawn(Launch(line.argv, env, None, _confinement(server)))
    try:
        async with asyncio.timeout(seconds):
            complaint, code = await _finished(process)
    except TimeoutError:
        words = f"{line.kind} did not fetch the server within {seconds:.0f} s (start_timeout_ms)"
        raise ServerUnavailable(words) from None
    finally:
        await process.end()
    if code != 0:
        raise ServerUnavailable(_failure(line, complaint))
    found = await asyncio.to_thread(_packages, line, server)
    logger.info("fetched with %s: %s", line.kind, ", ".join(f"{p.name} {p.version}" for p in found))
    return found


def target_of(server: Launch) -> str:
    """Return where a fetch unpacks what nobody needs afterwards."""
    return str(Path(server.env["TMPDIR"]) / _TARGET)


def _confinement(server: Launch) -> Confinement | None:
    before = server.confinement
    if before is None:
        return None
    sandbox = replace(before.sandbox, network="full", hosts=(), read=(), write=())
    return dataclasses.replace(before, sandbox=sandbox, egress=None)


def _environment(line: FetchLine, server: Launch, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a fetch: another HOME, and the caches of the server's."""
    given = {name: value for name, value in server.env.items() if name.startswith(_LAUNCHERS_OWN)}
    name, below = _CACHES[line.kind]
    cache = {name: str(Path(server.env["HOME"]) / below)}
    return {**base, **cache, **given, "HOME": server.env["TMPDIR"], "TMPDIR": server.env["TMPDIR"]}


async def _finished(process: ServerProcess) -> tuple[str, int]:
    """Return what a process complained of, and its exit code."""
    os.close(process.stdin_fd)
    _, complaint, code = await asyncio.gather(
        _tail(process.stdout_fd), _tail(process.stderr_fd), process.wait()
    )
    return complaint, code


async def _tail(descriptor: int) -> str:
    """Read to the end; return the last of it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    kept = b""
    try:
        while part := await reader.read(_SAID_BYTES):
            kept = (kept + part)[-_SAID_BYTES:]
    finally:
        transport.close()
    return kept.decode("utf-8", "replace")


def _failure(line: FetchLine, complaint: str) -> str:
    shown = complaint.strip()[-_SHOWN:]
    words = f"{line.kind} could not fetch the server without running its code: {shown}"
    if "build" not in complaint.lower() and "sdist" not in complaint.lower():
        return words
    return f"{words}; if its packages may be built, say build = true in [sandbox]"


# --- what came


def _packages(line: FetchLine, server: Launch) -> tuple[Package, ...]:
    """Return what was fetched, and remove what only the fetch needed."""
    if line.kind == "npx":
        found = _modules(Path(server.env["HOME"]) / _CACHES["npx"][1] / "_npx")
        return tuple(sorted(set(found)))
    target = Path(target_of(server))
    try:
        return tuple(sorted(set(_wheels(target))))
    finally:
        remove_tree(target)


def _wheels(target: Path) -> Iterator[Package]:
    for record in target.glob("*.dist-info/RECORD"):
        name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
        yield Package(name, version, "sha256-" + hashlib.sha256(record.read_bytes()).hexdigest())


def _modules(folder: Path) -> Iterator[Package]:
    for lock in folder.glob("*/node_modules/.package-lock.json"):
        if lock.is_symlink() or lock.stat().st_size > _LOCK_BYTES:
            continue
        with suppress(MsgspecError):
            for place, one in json.decode(lock.read_bytes(), type=_Lock).packages.items():
                yield Package(place.rpartition("node_modules/")[2], one.version, one.integrity)
