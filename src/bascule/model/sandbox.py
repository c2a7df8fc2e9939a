"""What a record grants its local server: a level of isolation, files, network, limits.

Words only: whether a level works on a machine is tried by the node (``node.pool.process``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

Level = Literal["none", "limits", "landlock", "namespaces", "bwrap", "best"]
#: What a server may turn out to have: on macOS ``best`` is ``seatbelt``, which no record names.
InForce = Literal["none", "limits", "landlock", "seatbelt", "namespaces", "bwrap", "best"]
Network = Literal["none", "egress", "full"]

#: By what each is sure to give, least first. ``best`` that is required gives at least landlock.
LEVELS: Final[tuple[Level, ...]] = ("none", "limits", "landlock", "best", "namespaces", "bwrap")
#: The same of all that may be in force.
RANKS: Final[tuple[InForce, ...]] = (
    "none", "limits", "landlock", "seatbelt", "best", "namespaces", "bwrap",
)  # fmt: skip
#: Least strict first.
NETWORKS: Final[tuple[Network, ...]] = ("full", "egress", "none")
#: What ``best`` may turn out to be, best first. ``namespaces`` has Landlock inside, and as root a
#: user of the server's own whatever folder its program is in; ``bwrap`` has neither.
BEST_FIRST: Final[tuple[Level, ...]] = ("namespaces", "bwrap", "landlock", "limits")
#: A network that is not ``full`` is kept from a server from here up; ``egress`` from here up.
CLOSES_NETWORK: Final[Level] = "landlock"
ROUTES_EGRESS: Final[Level] = "namespaces"
#: The entry of ``read`` and ``write`` that stands for the server's own ``stdio.cwd``.
OWN_CWD: Final = "."

HOST_PATTERN = r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$"
Host = Annotated[
    str, Meta(pattern=HOST_PATTERN, description="a host name, with :port unless that is 443")
]
GrantedPath = Annotated[
    str,
    Meta(
        pattern=r"^(/[^\x00]*|\.|~(/[^\x00]*)?)$",
        max_length=4096,
        description="an absolute path, or '.' for the server's own cwd",
    ),
]


class Sandbox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ``[sandbox]`` table of a record.

    ``required``: the server is refused where the level does not work; otherwise it gets the best
    level below it, visibly. ``read`` and ``write`` are granted besides the system's own folders,
    HOME and TMPDIR. ``memory_mb``, ``processes`` and ``home_mb`` count for the whole server where
    the system can count so, ``cpu_seconds`` and ``open_files`` for each of its processes.
    """

    level: Level = "best"
    required: bool = False
    read: tuple[GrantedPath, ...] = ()
    write: tuple[GrantedPath, ...] = (OWN_CWD,)
    network: Network = "full"
    hosts: tuple[Host, ...] = ()
    memory_mb: Annotated[int, Meta(ge=64, le=1_048_576)] = 4096
    processes: Annotated[int, Meta(ge=1, le=100_000)] = 256
    cpu_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    open_files: Annotated[int, Meta(ge=16, le=1_048_576)] = 1024
    home_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 2048
    build: bool = False


NO_SANDBOX: Final = Sandbox(level="none")
#: What ``sandbox = "…"`` stands for.
SHORT_FORMS: Final[Mapping[str, Sandbox]] = {
    "files-only": Sandbox(required=True, network="none"),
    "network-only": Sandbox(required=True, write=()),
    "no-access": Sandbox(required=True, write=(), network="none"),
}


class Standing(Struct, frozen=True, kw_only=True):
    """The level asked for, the one in force, and why they differ ("" where they do not)."""

    asked: Level
    in_force: InForce
    why: str = ""


def at_least(level: InForce, floor: Level) -> bool:
    """Say whether a level gives all that another gives."""
    return RANKS.index(level) >= RANKS.index(floor)


def acceptable(sandbox: Sandbox) -> tuple[Level, ...]:
    """Return the levels that a record is content with, best first.

    ``required`` leaves the level itself, and of ``best`` those that keep files and network;
    without it comes all that is below, but never none.
    """
    if sandbox.level == "none":
        return ("none",)
    if sandbox.level == "best":
        return BEST_FIRST[:-1] if sandbox.required else BEST_FIRST
    if sandbox.required:
        return (sandbox.level,)
    if at_least(sandbox.level, "namespaces"):  # the two stand in for each other
        return (sandbox.level, *(each for each in BEST_FIRST if each != sandbox.level))
    return BEST_FIRST[BEST_FIRST.index(sandbox.level) :]


def stricter(one: Sandbox, other: Sandbox) -> Sandbox:
    """Return what both allow, with the grants of ``one``: a record, and the platform's floor.

    Hosts are those that both name; where only one of them is on ``egress``, that one's.
    """
    network = NETWORKS[max(NETWORKS.index(each.network) for each in (one, other))]
    return Sandbox(
        level=LEVELS[max(LEVELS.index(each.level) for each in (one, other))],
        required=one.required or other.required,
        read=one.read,
        write=one.write,
        network=network,
        hosts=_common_hosts(one, other) if network == "egress" else (),
        memory_mb=min(one.memory_mb, other.memory_mb),
        processes=min(one.processes, other.processes),
        cpu_seconds=_least(one.cpu_seconds, other.cpu_seconds),
        open_files=min(one.open_files, other.open_files),
        home_mb=min(one.home_mb, other.home_mb),
        build=one.build and other.build,
    )


def contradictions(sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """Yield each field that contradicts another, and what was expected."""
    if sandbox.hosts and sandbox.network != "egress":
        yield "hosts", f'hosts need network = "egress"; it is "{sandbox.network}"'
    if sandbox.network == "egress" and not sandbox.hosts:
        yield "hosts", 'network = "egress" needs at least one host, such as "api.github.com:443"'
    for host in sandbox.hosts:
        if (port := host.rpartition(":")[2]).isdigit() and not 0 < int(port) < 65536:
            yield "hosts", f"{host!r}: a port is between 1 and 65535"
    if sandbox.level in ("none", "limits"):
        if sandbox.network != "full":
            yield "network", f'level "{sandbox.level}" keeps no network from a server'
        if sandbox.read:
            yield "read", f'level "{sandbox.level}" keeps no file from a server'
    if sandbox.level == "landlock" and sandbox.network == "egress":
        yield "network", '"egress" needs level "namespaces", "bwrap" or "best"'
    if sandbox.required and sandbox.level == "none":
        yield "required", 'level "none" requires nothing'


def _common_hosts(one: Sandbox, other: Sandbox) -> tuple[str, ...]:
    if one.network != "egress":
        return other.hosts
    if other.network != "egress":
        return one.hosts
    return tuple(host for host in one.hosts if host in other.hosts)


def _least(one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return min(given, default=None)
