"""What a launcher fetched the last time, by version and hash, and what a later fetch is held to.

The file lies beside a server's HOMEs, where a confined server does not reach, and is one for all
of them: whoever shares the server, each gets the same packages. A version that came once has its
hashes for good: no fetch changes them, only a person who removes the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from bascule.clock import Clock
from bascule.db.private_files import write_private
from bascule.errors import LaunchDenied

logger = logging.getLogger(__name__)

#: How long a line that leaves versions open is held to those that came.
_DAY = 86_400.0
_SHOWN = 3


class Package(Struct, frozen=True, order=True):
    """One package, and the hashes of the files that it may come in.

    Without a version it is a place on this machine, whose owner may change what is there.
    """

    name: str
    version: str
    hashes: tuple[str, ...] = ()


class Pins(Struct, frozen=True, kw_only=True):
    """What came the last time, what came before that, and npm's own notes on how to repeat it."""

    packages: tuple[Package, ...]
    earlier: tuple[Package, ...] = ()
    files: Mapping[str, str] = {}

    def hashes_of(self, package: Package) -> tuple[str, ...]:
        """Return the hashes of one version, if it came once."""
        for one in (*self.packages, *self.earlier):
            if (one.name, one.version) == (package.name, package.version):
                return one.hashes
        return ()


class PinFile:
    """The pins of one line of one server."""

    def __init__(self, server_id: str, path: Path, clock: Clock) -> None:
        self._server_id = server_id
        self._path = path
        self._clock = clock

    def read(self) -> Pins | None:
        """Return what is held; None before the first fetch."""
        try:
            return json.decode(self._path.read_bytes(), type=Pins)
        except FileNotFoundError:
            return None
        except (OSError, MsgspecError) as fault:
            words = f"the versions that {self._server_id} is held to cannot be read: {fault}"
            raise LaunchDenied(f"{words}; to have it fetched anew: {self.acceptance}") from fault

    def fresh(self) -> bool:
        """Say whether what is held came less than a day ago."""
        try:
            return self._clock.now() - self._path.stat().st_mtime < _DAY
        except OSError:
            return False

    def hold(self, offered: Iterable[Package]) -> tuple[Package, ...]:
        """Return packages with the hashes that they are held to; raise for one that is another.

        A version may gain files or lose some. One that gained and lost was replaced.
        """
        pins = self.read()
        if pins is None:
            return tuple(offered)
        return tuple(self._held(pins, package) for package in offered)

    def keep(self, packages: tuple[Package, ...], files: Mapping[str, str]) -> None:
        """Hold later fetches to this; say loudly which versions are others than before."""
        before = self.read()
        if before is not None:
            for change in _changes(before.packages, packages):
                logger.warning("%s now has other packages: %s", self._server_id, change)
        pins = Pins(packages=packages, earlier=_earlier(before, packages), files=files)
        write_private(self._path, json.format(json.encode(pins)))
        now = self._clock.now()
        os.utime(self._path, (now, now))

    def refuse(self, package: Package, before: Iterable[str], now: Iterable[str]) -> LaunchDenied:
        """Return the refusal of a version that is not what it was."""
        return LaunchDenied(
            f"{package.name} {package.version} is not what it was: {_shown(before)} came before, "
            f"{_shown(now)} now; the server is not started. If you know why it is another, "
            f"accept it: {self.acceptance}"
        )

    @property
    def acceptance(self) -> str:
        """The command by which a person takes what comes next, whatever it is."""
        return f"bascule servers clean {self._server_id} --pins"

    def _held(self, pins: Pins, package: Package) -> Package:
        known, offered = set(pins.hashes_of(package)), set(package.hashes)
        if not known or not package.version:
            return package
        if known - offered and offered - known:
            raise self.refuse(package, known - offered, offered - known)
        return Package(package.name, package.version, tuple(sorted(known)))


def _earlier(before: Pins | None, packages: tuple[Package, ...]) -> tuple[Package, ...]:
    if before is None:
        return ()
    now = {(one.name, one.version) for one in packages}
    past = {*before.packages, *before.earlier}
    return tuple(sorted(one for one in past if one.version and (one.name, one.version) not in now))


def _changes(before: Iterable[Package], after: Iterable[Package]) -> list[str]:
    """Return what is another version than it was, new or gone, as lines."""
    old, new = _versions(before), _versions(after)
    return [
        f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _versions(packages: Iterable[Package]) -> dict[str, str]:
    """Return the versions of each package; npm may have several of one."""
    found: dict[str, list[str]] = {}
    for one in sorted(packages):
        if one.version:
            found.setdefault(one.name, []).append(one.version)
    return {name: " and ".join(dict.fromkeys(versions)) for name, versions in found.items()}


def _shown(hashes: Iterable[str]) -> str:
    listed = sorted(hashes)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
