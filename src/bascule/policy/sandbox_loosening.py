"""What a sandbox grants that the one before did not, in words with the path of the field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bascule.model.platform import SandboxFloor
from bascule.model.sandbox import CLOSES_NETWORK, LEVELS, NETWORKS, NO_SANDBOX, Sandbox, at_least
from bascule.model.server import ServerRecord

_SHOWN = 5
_LIMITS = ("memory_mb", "processes", "cpu_seconds", "open_files", "home_mb")


def looser_sandbox(before: ServerRecord, after: ServerRecord) -> Iterator[str]:
    """Name each grant of a server that is wider; a record without a sandbox has no bounds."""
    old, new = before.sandbox or NO_SANDBOX, after.sandbox or NO_SANDBOX
    if old.level == "none":
        return  # nothing was bounded
    if new.level == "none":
        yield f"sandbox.level: {old.level!r} became 'none'"
        return
    yield from _bounds(old, new)
    if new.build and not old.build:
        yield "sandbox.build: turned on"
    if at_least(old.level, CLOSES_NETWORK):
        yield from _paths("read", (*old.read, *old.write), new.read)
        yield from _paths("write", old.write, new.write)
    yield from _limits(old, new)


def looser_floor(before: SandboxFloor, after: SandboxFloor) -> Iterator[str]:
    """Name each bound of the platform that holds less."""
    yield from _bounds(before, after)
    if after.build and not before.build:
        yield "sandbox.build: turned on"
    yield from _limits(before, after)


def _bounds(old: Sandbox | SandboxFloor, new: Sandbox | SandboxFloor) -> Iterator[str]:
    if LEVELS.index(new.level) < LEVELS.index(old.level):
        yield f"sandbox.level: {old.level!r} became {new.level!r}"
    if old.required and not new.required:
        yield "sandbox.required: turned off"
    if NETWORKS.index(new.network) < NETWORKS.index(old.network):
        yield f"sandbox.network: {old.network!r} became {new.network!r}"
    elif new.network == old.network == "egress":
        yield from _added("hosts", [host for host in new.hosts if host not in old.hosts])


def _limits(old: Sandbox | SandboxFloor, new: Sandbox | SandboxFloor) -> Iterator[str]:
    for name in _LIMITS:
        had: int | None = getattr(old, name)
        has: int | None = getattr(new, name)
        if had is not None and (has is None or has > had):
            yield f"sandbox.{name}: {had} became {'none' if has is None else has}"


def _paths(field: str, had: Sequence[str], has: Sequence[str]) -> Iterator[str]:
    yield from _added(field, [path for path in has if not any(_within(path, one) for one in had)])


def _within(path: str, granted: str) -> bool:
    """Say whether a path is surely part of another: one with ``..`` may be anywhere."""
    below = path.startswith(granted.rstrip("/") + "/") and ".." not in path.split("/")
    return path == granted or below


def _added(field: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
        yield f"sandbox.{field}: {', '.join(map(repr, texts[:_SHOWN]))}{more} granted now"
