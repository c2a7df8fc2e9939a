"""Memory and processes of a whole server, counted by the kernel where a cgroup can be made.

One cgroup for each server, beside or below the warden's own, of either version. Where none can be
made there are the limits of each process, and the node's watch.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNTS = "/proc/self/mountinfo"
_OWN = "/proc/self/cgroup"
#: What limits which thing, by the version of the interface.
_MEMORY = {1: "memory.limit_in_bytes", 2: "memory.max"}
_SWAP = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
_PROCESSES = {1: "pids.max", 2: "pids.max"}


def name_of(mark: str) -> str:
    """Return the name of a server's cgroup."""
    return f"bascule-{mark}"


def make(mark: str, memory_bytes: int, processes: int) -> list[str]:
    """Return the folders of a new cgroup with both limits; none where they cannot be had."""
    made: list[str] = []
    for wanted, files, value in (
        ("memory", _MEMORY, memory_bytes),
        ("pids", _PROCESSES, processes),
    ):
        folder = next(_made(name_of(mark), wanted, files, value), None)
        if folder is None:
            remove(made)
            return []
        made.append(folder)
    return list(dict.fromkeys(made))


def _made(name: str, wanted: str, files: dict[int, str], value: int) -> Iterator[str]:
    for version, parent, ours in _parents(wanted):
        folder = f"{parent}/{name}"
        if version == 2 and ours:
            _enable(parent, wanted)
        if _limited(folder, files[version], value):
            if wanted == "memory":
                _write(f"{folder}/{_SWAP[version]}", value if version == 1 else 0)
            yield folder


def join(folders: list[str], pid: int) -> bool:
    """Put a process into a cgroup; say whether all of it worked."""
    return all(_write(f"{folder}/cgroup.procs", pid) for folder in folders)


def members(folders: list[str]) -> set[int]:
    """Return the processes in a cgroup, whatever became of their parents and environments."""
    return {int(line) for folder in folders for line in _lines(f"{folder}/cgroup.procs")} - {0}


def kill(folders: list[str]) -> None:
    """Have the kernel kill all that is in a cgroup at once, where it does that (Linux 5.14)."""
    for folder in folders:
        _write(f"{folder}/cgroup.kill", 1)


def remove(folders: list[str]) -> None:
    """Remove a cgroup whose processes are gone."""
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            continue


def remove_all(owner: str) -> None:
    """Remove every cgroup of an owner's, by how the marks of its servers begin."""
    prefix = name_of(owner)
    for wanted in ("memory", "pids"):
        for _, parent, _ in _parents(wanted):
            try:
                names = os.listdir(parent)
            except OSError:
                continue
            remove([f"{parent}/{name}" for name in names if name.startswith(prefix)])


def _enable(parent: str, controller: str) -> None:
    """Have a controller count for what is below our cgroup; refused unless that is the root."""
    have, counts = (
        _words(f"{parent}/cgroup.{name}") for name in ("controllers", "subtree_control")
    )
    if controller in have and controller not in counts:
        _write(f"{parent}/cgroup.subtree_control", f"+{controller}")


def _words(path: str) -> list[str]:
    return " ".join(_lines(path)).split()


def _limited(folder: str, file: str, value: int) -> bool:
    try:
        os.makedirs(folder, 0o755, exist_ok=True)
    except OSError:
        return False
    if os.path.exists(f"{folder}/{file}") and _write(f"{folder}/{file}", value):
        return True
    remove([folder])
    return False


def _parents(controller: str) -> Iterator[tuple[int, str, bool]]:
    """Return where a cgroup may be made: the version of the interface, the folder, if it is ours.

    In the second version one that has processes in it, as ours has, counts for none below it:
    then there may be one beside it.
    """
    own = dict(_own())
    for version, point, names in _mounts():
        if version == 1 and controller not in names:
            continue
        path = own.get(controller if version == 1 else "")
        if path is None:
            continue
        here = (point + path).rstrip("/")
        yield version, here, True
        if version == 2 and path != "/":
            yield version, os.path.dirname(here), False


def _own() -> Iterator[tuple[str, str]]:
    for line in _lines(_OWN):
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            yield name, path


def _mounts() -> Iterator[tuple[int, str, list[str]]]:
    for line in _lines(_MOUNTS):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            version = 1 if kind == "cgroup" else 2
            yield version, before.split()[4], options.split(",")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _write(path: str, value: int | str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, str(value).encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
