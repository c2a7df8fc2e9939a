"""From a record's sandbox to what the warden is told to do, with the field at fault named."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.errors import LaunchDenied
from bascule.model.sandbox import OWN_CWD, InForce, Sandbox
from bascule.node.homes import SERVER_USERS
from bascule.node.pool.process import places
from bascule.node.pool.process.confinement import shim
from bascule.node.pool.process.places import within

if TYPE_CHECKING:
    from bascule.node.pool.process.confinement.root import Plan

_MB = 1 << 20
_TEMPORARY_MB = 256
_KEEP_FILES: tuple[InForce, ...] = ("landlock", "seatbelt", "namespaces", "bwrap")


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a launch is confined to.

    ``own`` are the server's private folders, the HOME first, which are there; ``never`` is what no
    grant opens. ``ours`` is the folder that private folders lie in, if it is the node's own.
    """

    sandbox: Sandbox
    own: tuple[str, ...]
    never: tuple[str, ...] = ()
    ours: str | None = None
    #: The socket of the node's proxy for this server, where the network is ``egress``.
    egress: str | None = None


def keeps_files(level: InForce) -> bool:
    """Say whether a server at this level sees only what it was granted."""
    return level in _KEEP_FILES


def dedicated_user(confinement: Confinement) -> int:
    """Return the user of one server: the same each time that it has the same HOME."""
    return SERVER_USERS[zlib.crc32(os.fsencode(confinement.own[0])) % len(SERVER_USERS)]


def draw(
    confinement: Confinement,
    level: InForce,
    programs: Sequence[str],
    cwd: str | None,
    path: str,
) -> Plan:
    """Return the plan of one start; raise ``LaunchDenied`` for a grant that cannot be given.

    ``programs`` are what it starts, absolute. ``cwd`` is the record's own, absolute; ``path`` is
    where the server's programs are looked for.
    """
    sandbox = confinement.sandbox
    plan: Plan = {
        "level": level,
        "uid": None,
        "network": sandbox.network,
        "read": [],
        "write": [],
        "own": [],
        "hide": [],
        "links": [],
        "check_read": [],
        "egress": confinement.egress if sandbox.network == "egress" else None,
        "temporary_bytes": min(_TEMPORARY_MB, sandbox.home_mb) * _MB,
        "limits": {
            "memory_bytes": sandbox.memory_mb * _MB,
            "processes": sandbox.processes,
            "cpu_seconds": sandbox.cpu_seconds,
            "open_files": sandbox.open_files,
            "file_bytes": sandbox.home_mb * _MB,
        },
    }
    plan["own"] = [places.real(folder) for folder in confinement.own]
    plan["check_read"] = [places.real(program) for program in programs]
    if keeps_files(level):
        _add_places(plan, confinement, programs, cwd, path)
    elif cwd is not None:
        plan["check_read"].append(cwd)
    return plan


def _add_places(
    plan: Plan, confinement: Confinement, programs: Sequence[str], cwd: str | None, path: str
) -> None:
    never = tuple(dict.fromkeys(places.real(place) for place in confinement.never))
    read = dict(_grants("read", confinement.sandbox.read, cwd, confinement))
    write = dict(_grants("write", confinement.sandbox.write, cwd, confinement))
    system, system_links = places.system_places(mac=plan["level"] == "seatbelt")
    installed, program_links = places.program_places(programs, path, never)
    plan["check_read"] += read
    plan["write"] = list(write)
    plan["read"] = [
        *system,
        *(place for place in installed if not _covered(place, system)),
        *(place for place in read if place not in write),
    ]
    plan["links"] = [*system_links, *program_links]
    if plan["egress"]:
        plan["own"].append(places.real(plan["egress"]))
        _add_shim(plan, path, never)
    for spelled in (*read.values(), *write.values(), *confinement.own, *((cwd,) if cwd else ())):
        plan["links"] += places.links_on(spelled)
    granted = (*plan["read"], *plan["write"], *plan["own"])
    plan["links"] = [
        link for link in dict.fromkeys(plan["links"]) if not _covered(link[0], granted)
    ]
    _refuse_cwd_outside(plan, cwd)
    _keep_away(plan, never)


def _add_shim(plan: Plan, path: str, never: tuple[str, ...]) -> None:
    """Have bubblewrap start what leads to the proxy: it needs this Python inside."""
    if plan["level"] == "bwrap":
        script = str(Path(shim.__file__).resolve())
        installed, links = places.program_places([sys.executable], path, never)
        plan["shim"] = [sys.executable, "-I", "-S", script]
        plan["read"] += [*installed, script]
        plan["links"] += links


def _keep_away(plan: Plan, never: tuple[str, ...]) -> None:
    """Hide what must not be seen, or where nothing can be hidden grant only what is around it."""
    if plan["level"] == "landlock":
        for kind in ("read", "write"):
            plan[kind] = [each for place in plan[kind] for each in places.around(place, never)]
        return
    if plan["level"] == "seatbelt":  # whose rules are about paths, whether there is anything or not
        plan["hide"] = list(never)
        return
    granted = (*plan["read"], *plan["write"])
    plan["hide"] = [place for place in never if _covered(place, granted)]


def _grants(
    field: str, grants: Iterable[str], cwd: str | None, confinement: Confinement
) -> Iterator[tuple[str, str]]:
    """Return what a list of the record grants: real paths, and how they are spelled."""
    for at, grant in enumerate(grants):
        name = f"sandbox.{field}[{at}]"
        if grant == OWN_CWD:
            if cwd is None:
                continue
            spelled = cwd
        else:
            spelled = _expanded(name, grant)
        place = places.real(spelled)
        if not Path(place).exists():
            raise LaunchDenied(f"{name}: {grant!r} does not exist on this machine")
        if place == "/":
            raise LaunchDenied(f"{name}: {grant!r} is the whole machine; name the folders needed")
        for closed in confinement.never:
            if within(place, places.real(closed)) and not _covered(place, confinement.own):
                raise LaunchDenied(f"{name}: {grant!r} lies in {closed!r}, which no server sees")
        yield place, spelled


def _expanded(name: str, grant: str) -> str:
    try:
        return str(Path(grant).expanduser())
    except RuntimeError as fault:
        raise LaunchDenied(f"{name}: {grant!r}: the node's user has no home here") from fault


def _refuse_cwd_outside(plan: Plan, cwd: str | None) -> None:
    if cwd is None or not Path(cwd).exists():
        return  # a folder that is not there is refused by the start itself
    if not _covered(places.real(cwd), (*plan["read"], *plan["write"], *plan["own"])):
        raise LaunchDenied(
            f"stdio.cwd: the sandbox does not grant {cwd!r}; add it to sandbox.read or"
            f" sandbox.write ({OWN_CWD!r} stands for it there)"
        )


def _covered(place: str, folders: Iterable[str]) -> bool:
    return any(within(place, folder) for folder in folders)
