"""Fetching what a launcher starts, before it is started where it may not reach the network.

The fetch has a HOME of its own, so that nothing a server wrote into its HOME configures it. What
it brings lies in the caches that the server's own launcher looks into, one copy for each server.
What there is to fetch is found out in a cache that no server wrote to, and held to the pins.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.fetch_line import FetchLine, constrained
from bascule.node.pool.lock_files import (
    constraint_lines,
    node_packages,
    node_trees,
    read_plain,
    requirement_lines,
    requirements,
)
from bascule.node.pool.pins import Package, PinFile, Pins
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch, ServerProcess, Spawner
from bascule.node.pool.transport.channel import ignore_words
from bascule.node.trees import remove_tree

logger = logging.getLogger(__name__)

#: What a launcher says is for a message: the end of it is enough.
_SAID_BYTES = 64 * 1024
_SHOWN = 600
#: Variables of a record that are for its launcher: the platform's word, not a server's.
_LAUNCHERS_OWN = ("UV_", "PIP_", "NPM_CONFIG_", "npm_config_")
#: Where each keeps what it fetched, below HOME.
_CACHES = {"uvx": ("UV_CACHE_DIR", ".cache/uv"), "npx": ("npm_config_cache", ".npm")}
#: npm asks the network nothing besides, and takes notes of what it unpacked. What uv installs is
#: thrown away: what counts is in its cache, which the folder is another file system to.
_OPTIONS = {
    "npm_config_update_notifier": "false",
    "npm_config_audit": "false",
    "npm_config_package_lock": "true",
    "UV_LINK_MODE": "symlink",
}
_UV_MISMATCH = re.compile(r"Hash mismatch for `([^`=]+)==([^`]+)`(.*?)Computed:(.*)", re.DOTALL)
_NPM_MISMATCH = re.compile(r"wanted (sha\S+) but got (sha\S+?)\.? ")
_NOT_HERE = re.compile(r"(\S+==\S+) needs to be downloaded")
_BUILD = re.compile(r"\b(build|built|building|sdist|source dist)", re.IGNORECASE)
#: What npm begins each line with, and where it left its log; which Python uv has found.
_ALWAYS = re.compile(
    r"npm (?:error|warn) (?:\d+ ?|A complete log .*)?|npm notice.*|Using CPython .*"
)
_SHA = re.compile(r"sha\d+:[0-9a-f]+")
#: Done by a process that is confined as the fetch is: a server's folders may hold any links.
_PUT = 'mkdir -p "$2" && cp -f "$1"/* "$2"'
_REMOVE = 'rm -rf "$1"'


def held_argv(server: Launch, pins: PinFile | None) -> tuple[str, ...]:
    """Return a server's command line with the versions it is held to, where its launcher asks."""
    known = None if pins is None else pins.read()
    if known is None or not (lines := constraint_lines(known.packages)):
        return server.argv
    file = Path(server.env["TMPDIR"]) / "versions.txt"
    argv = constrained(server.argv, str(file))
    if argv != server.argv:
        _write(file, lines)
    return argv


class _Failed(ServerUnavailable):
    """A command of a fetch did not work; ``complaint`` is what it said."""

    def __init__(self, message: str, complaint: str) -> None:
        super().__init__(message)
        self.complaint = complaint


class Fetch:
    """One fetch, in steps that are processes.

    ``server`` is what will be started, ``base`` the environment that every server of the node has.
    The fetch is confined as the server is, but for the network, and is granted none of its files.
    """

    def __init__(
        self,
        spawner: Spawner,
        line: FetchLine,
        server: Launch,
        base: Mapping[str, str],
        pins: PinFile | None = None,
        on_said: Callable[[str], None] = ignore_words,
    ) -> None:
        self._on_said = on_said
        self._spawner = spawner
        self._line = line
        self._base = base
        self._server = server
        self._pins = pins
        self._folder = Path(server.env["TMPDIR"])
        name, below = _CACHES[line.kind]
        self._cache = Path(server.env.get(name) or Path(server.env["HOME"]) / below)
        #: A cache that is not there yet was written to by no server.
        self._clean = not os.path.lexists(self._cache)

    async def run(self, seconds: float) -> tuple[Package, ...]:
        """Fetch what a server is made of; raise ServerUnavailable with what the launcher said.

        Raises LaunchDenied for a package that is not what the pins hold it to.
        """
        kind = self._line.kind
        try:
            async with asyncio.timeout(seconds):
                found = await (self._wheels() if kind == "uvx" else self._modules())
        except TimeoutError:
            words = f"{kind} did not fetch the server within {seconds:.0f} s (start_timeout_ms)"
            raise ServerUnavailable(words) from None
        listed = ", ".join(f"{one.name} {one.version}".strip() for one in found)
        logger.info("fetched with %s: %s", kind, listed)
        return found

    async def _wheels(self) -> tuple[Package, ...]:
        """Fetch with uv: find out what there is, unpack what has the right hashes."""
        asked, held = self._folder / "asked.txt", self._folder / "held.txt"
        _write(asked, "".join(f"{package}\n" for package in self._line.packages))
        pins = await asyncio.to_thread(self._held)
        packages = await self._resolved(asked) if pins is None else pins.packages
        _write(held, requirement_lines(packages))
        strict = ("--require-hashes",) if all(one.hashes for one in packages) else ()
        target = str(self._folder / "fetched")
        try:
            await self._command(self._line.installing((str(held),), target, *strict))
        except _Failed as fault:
            raise self._uv_refusal(fault, packages) from fault
        if self._pins is not None:
            await self._rehearse(self._pins, asked, packages)
            if pins is None:
                await asyncio.to_thread(self._pins.keep, packages, {})
        await asyncio.to_thread(remove_tree, Path(target))
        return packages

    async def _modules(self) -> tuple[Package, ...]:
        """Fetch with npx: npm holds what it unpacks to notes of its own, which are put back."""
        pins = await asyncio.to_thread(self._held)
        if pins is None and not self._clean and self._pins is not None:
            apart = self._folder / "cache"
            await self._command(self._line.unpacking(), apart)
            await asyncio.to_thread(self._kept, self._pins, apart)
            pins = await asyncio.to_thread(self._pins.read)
        if pins is not None:
            await self._put_back(pins.files)
        try:
            await self._command(self._line.unpacking())
        except _Failed as fault:
            raise self._npm_refusal(fault) from fault
        found = node_packages(await asyncio.to_thread(node_trees, self._cache))
        if self._pins is not None:
            await self._checked(self._pins, pins, found)
        return found

    # --- what there is

    def _held(self) -> Pins | None:
        """Return what the fetch has to bring, if it is to bring nothing newer."""
        pins = None if self._pins is None else self._pins.read()
        if self._pins is None or pins is None:
            return None
        held = self._line.exact or self._pins.fresh()
        return pins if held and all(one.version for one in pins.packages) else None

    async def _resolved(self, asked: Path) -> tuple[Package, ...]:
        found = self._folder / "found.txt"
        cache = None if self._clean else self._folder / "cache"
        await self._command(self._line.resolving(str(asked), str(found)), cache)
        offered = tuple(requirements(read_plain(found) or ""))
        return offered if self._pins is None else await asyncio.to_thread(self._pins.hold, offered)

    async def _rehearse(self, pins: PinFile, asked: Path, packages: tuple[Package, ...]) -> None:
        """See that uvx, which knows versions and no hashes, will take the same files.

        It would not where a version has gained a file that fits this machine better.
        """
        versions, target = self._folder / "versions.txt", self._folder / "rehearsed"
        _write(versions, constraint_lines(packages))
        extra = ("--offline", "--constraints", str(versions))
        files = (str(asked), *self._line.files)
        try:
            await self._command(self._line.installing(files, str(target), *extra))
        except _Failed as fault:
            found = _NOT_HERE.search(fault.complaint)
            if found is None:
                raise
            raise LaunchDenied(
                f"{found[1]} has files that it did not have when it came, and one of them fits "
                "this machine better; the server is not started. If you know why they were "
                f"added, accept them: {pins.acceptance}"
            ) from fault
        await asyncio.to_thread(remove_tree, target)

    @staticmethod
    def _kept(pins: PinFile, cache: Path) -> None:
        """Hold later fetches to what is in a cache that no server wrote to."""
        trees = node_trees(cache)
        pins.keep(pins.hold(node_packages(trees)), trees)

    async def _checked(self, pins: PinFile, held: Pins | None, found: tuple[Package, ...]) -> None:
        """Compare what npx unpacked with the pins; what is not to be run does not stay."""
        try:
            await asyncio.to_thread(pins.hold, found)
        except LaunchDenied:
            await self._shell(_REMOVE, str(self._cache / "_npx"))
            raise
        if self._clean and (held is None or set(held.packages) != set(found)):
            await asyncio.to_thread(self._kept, pins, self._cache)

    async def _put_back(self, files: Mapping[str, str]) -> None:
        for tree in sorted({name.partition("/")[0] for name in files}):
            folder = self._folder / "notes" / tree
            folder.mkdir(parents=True)
            for name, text in files.items():
                if name.startswith(f"{tree}/"):
                    _write(folder / name.partition("/")[2], text)
            await self._shell(_PUT, str(folder), str(self._cache / "_npx" / tree))

    def _uv_refusal(self, fault: _Failed, packages: tuple[Package, ...]) -> ServerUnavailable:
        found = _UV_MISMATCH.search(fault.complaint)
        known = [one for one in packages if found and (one.name, one.version) == found.group(1, 2)]
        if found is None or not known or self._pins is None:
            return fault
        return self._pins.refuse(known[0], _SHA.findall(found[3]), _SHA.findall(found[4]))

    def _npm_refusal(self, fault: _Failed) -> ServerUnavailable:
        found = _NPM_MISMATCH.search(fault.complaint)
        pins = None if self._pins is None else self._pins.read()
        if found is None or self._pins is None or pins is None:
            return fault
        known = [one for one in (*pins.packages, *pins.earlier) if found[1] in one.hashes]
        return self._pins.refuse(known[0], (found[1],), (found[2],)) if known else fault

    # --- its processes

    async def _shell(self, script: str, *arguments: str) -> None:
        await self._command(("/bin/sh", "-c", script, "sh", *arguments))

    async def _command(self, argv: tuple[str, ...], cache: Path | None = None) -> None:
        """Run one command to its end; it starts where no server left a configuration."""
        env = self._environment(cache or self._cache)
        confinement = _confinement(self._server)
        process = await self._spawner.spawn(Launch(argv, env, str(self._folder), confinement))
        try:
            complaint, code = await _finished(process, self._on_said)
        finally:
            await process.end()
        if code != 0:
            raise _Failed(_failure(self._line, complaint), complaint)

    def _environment(self, cache: Path) -> dict[str, str]:
        """Return the environment of a fetch: another HOME, and a cache."""
        given = {
            name: value
            for name, value in self._server.env.items()
            if name.startswith(_LAUNCHERS_OWN)
        }
        own = {"HOME": str(self._folder), "TMPDIR": str(self._folder)}
        return {**self._base, **_OPTIONS, **given, _CACHES[self._line.kind][0]: str(cache), **own}


def _confinement(server: Launch) -> Confinement | None:
    before = server.confinement
    if before is None:
        return None
    sandbox = replace(before.sandbox, network="full", hosts=(), read=(), write=())
    return dataclasses.replace(before, sandbox=sandbox, egress=None)


def _write(path: Path, text: str) -> None:
    """Write a file that a server's user may read, never through a link."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        file.write(text)


async def _finished(process: ServerProcess, on_said: Callable[[str], None]) -> tuple[str, int]:
    """Return what a process complained of, and its exit code."""
    os.close(process.stdin_fd)
    _, complaint, code = await asyncio.gather(
        _tail(process.stdout_fd), _tail(process.stderr_fd, on_said), process.wait()
    )
    return complaint, code


async def _tail(descriptor: int, on_said: Callable[[str], None] = ignore_words) -> str:
    """Read to the end, and tell of it; return the last of it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    kept = b""
    try:
        while part := await reader.read(_SAID_BYTES):
            kept = (kept + part)[-_SAID_BYTES:]
            on_said(kept.decode("utf-8", "replace"))
    finally:
        transport.close()
    return kept.decode("utf-8", "replace")


def _failure(line: FetchLine, complaint: str) -> str:
    words = f"{line.kind} could not fetch the server: {_end(complaint)}"
    if line.build or not _BUILD.search(complaint):
        return words
    return f"{words}; if its packages may be built, say build = true in [sandbox]"


def _end(complaint: str) -> str:
    """Return the last of what a launcher said, without what is the same in every failure."""
    lines = (_ALWAYS.sub("", line).rstrip() for line in complaint.splitlines())
    return "\n".join(line for line in lines if line.strip()).strip()[-_SHOWN:]
