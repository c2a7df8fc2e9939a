"""From a record to what is started: references resolved now, the node's rules applied.

The environment begins empty; what a record did not ask for, its server does not see. Values that
came from references are handed on for masking and stand in no message.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir

from msgspec import Struct

from bascule.errors import ServerUnavailable
from bascule.lifetime import Lifetime
from bascule.model.server import ServerRecord, Stdio
from bascule.node.executables import Line, refuse_code_variables, refuse_unlisted
from bascule.node.homes import Home, Homes
from bascule.node.leftovers import PREFIX, OwnedFolder
from bascule.node.pool.process.confinement.shim import PORT
from bascule.node.pool.process.places import never_granted
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch, locate, working_directory
from bascule.node.trees import remove_tree
from bascule.outbound.network_variables import OUTWARD, credentials_in, through
from bascule.outbound.references import Reading, refuse_nul, refuse_own_places
from bascule.outbound.rules import NodeRules

LOCALE = "C.UTF-8"


class Resolved(Struct, frozen=True):
    """A launch, the values in it that came from elsewhere, and its private folder.

    ``reference_values`` are all that came from references: they are never written down.
    ``known_values`` are the credentials among them: they are masked in what anybody reads. The
    folder holds the private TMPDIR, and the HOME unless that is ``kept``; it goes when the server
    has ended.
    """

    launch: Launch
    known_values: frozenset[str]
    reference_values: frozenset[str]
    folder: Path
    kept: Home | None = None

    def __repr__(self) -> str:
        return f"Resolved(program={self.launch.argv[0]!r}, folder={str(self.folder)!r})"


async def resolve_launch(
    record: ServerRecord,
    reading: Reading,
    home: Path,
    homes: Homes | None = None,
    sharer: str = "",
) -> Resolved:
    """Return what to start for a record, or raise with the field at fault and what to do.

    ``home`` is a folder for private
    folders, one per server id: connections of one server that must not share a HOME get
    different ones. ``homes`` has the HOMEs that are kept, one for each ``sharer``; whoever is
    given one leaves it.
    """
    stdio = _stdio(record)
    rules = reading.rules
    given = {
        name: await reading.value(text, _field(stdio, name))
        for name, text in stdio.environment().items()
    }
    command = reading.text(stdio.command, "stdio.command")
    args = [reading.text(arg, f"stdio.args[{i}]") for i, arg in enumerate(stdio.args)]
    refuse_nul("stdio.cwd", stdio.cwd or "")
    refuse_own_places(rules, args, stdio.cwd)
    refuse_code_variables(rules, stdio.environment())
    folder = home / record.server_id
    env = _environment(given, reading, folder)
    launch = Launch((command, *args), env, stdio.cwd)
    program = _program(rules, launch, own_path="PATH" in given)
    _make_private(folder)
    kept = None
    if homes is not None and keeps_home(record) and "HOME" not in given:
        kept = homes.take(record.server_id, (program, *args), sharer)
        env = env if kept is None else env | {"HOME": str(kept.path)}
    own = folder / "home" if kept is None else kept.path, folder / "tmp"
    confinement = _confinement(record, reading, own, home.parent.parent, homes)
    if confinement is not None and confinement.egress is not None:
        env = env | through(f"http://127.0.0.1:{PORT}")
    return Resolved(
        Launch((program, *args), env, stdio.cwd, confinement),
        frozenset(reading.known),
        frozenset(reading.read),
        folder,
        kept,
    )


def _confinement(
    record: ServerRecord,
    reading: Reading,
    own: tuple[Path, Path],
    ours: Path,
    homes: Homes | None,
) -> Confinement | None:
    """Return what the record's server is kept to: its own folders, and what no grant opens."""
    if record.sandbox is None or record.sandbox.level == "none":
        return None
    never = closed_places(reading.environ, reading.rules, ours, homes)
    egress = str(own[1].parent / "egress") if record.sandbox.network == "egress" else None
    return Confinement(record.sandbox, tuple(map(str, own)), never, str(ours), egress)


def closed_places(
    environ: Mapping[str, str], rules: NodeRules, ours: Path, homes: Homes | None
) -> tuple[str, ...]:
    """Return what no grant opens.

    Other servers' HOMEs are among it, of this node and of others on the machine.
    """
    others = [str(folder) for folder in Path(gettempdir()).glob(f"{PREFIX}*")]
    kept = () if homes is None else (str(homes.root),)
    return never_granted(environ, (*rules.private, str(ours), *others, *kept))


def keeps_home(record: ServerRecord) -> bool:
    """Say whether the HOME of a server outlives it: what sessions do not share does not."""
    return record.sharing != "session" and record.stdio is not None and record.stdio.home == "kept"


def _stdio(record: ServerRecord) -> Stdio:
    if record.stdio is None:
        raise ServerUnavailable(f"{record.server_id} has no [stdio] table to start a server from")
    return record.stdio


def _field(stdio: Stdio, name: str) -> str:
    return f"stdio.env.{name}" if name in stdio.env else "stdio.env_from"


def _outward(reading: Reading, given: Mapping[str, str]) -> dict[str, str]:
    """Return the node's own way to the network, as far as its rules let servers have it."""
    environ, allows = reading.environ, reading.rules.allows_variable
    passed = {name: environ[name] for name in OUTWARD if name in environ and allows(name)}
    for name in OUTWARD:
        for value in credentials_in(given.get(name, passed.get(name, ""))):
            reading.remember(value, secret=True)
    return passed


def base_environment(reading: Reading, folder: Path) -> dict[str, str]:
    """Return the environment of a server whose record gives it nothing."""
    return _environment({}, reading, folder)


def _environment(given: Mapping[str, str], reading: Reading, folder: Path) -> dict[str, str]:
    """Return the whole environment: PATH, a private HOME and TMPDIR, a locale, the record's own."""
    env = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "LANG": LOCALE}
    env |= _outward(reading, given)
    if "PATH" in reading.environ:
        env["PATH"] = reading.environ["PATH"]
    if not any(name == "LANG" or name.startswith("LC_") for name in given):
        env["LC_ALL"] = LOCALE  # it would outrank a locale that the record chose
    return env | dict(given)


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("home", "tmp"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as fault:
        raise ServerUnavailable(f"no private folder {str(folder)!r}: {fault.strerror}") from fault


def _program(rules: NodeRules, launch: Launch, *, own_path: bool) -> str:
    """Return the program's absolute path, which is also what is started: no second search."""
    command = launch.argv[0]
    if not command:
        raise ServerUnavailable("stdio.command: empty once its references are resolved")
    program = locate(command, launch.env, working_directory(launch))
    name = None if own_path or "/" in command else command
    refuse_unlisted(rules, Line(program, name, launch.argv[1:], launch.cwd))
    return program


class PrivateHomes(Lifetime):
    """Owns the folder below which servers have their private HOME and TMPDIR."""

    def __init__(self) -> None:
        self._folder = OwnedFolder()
        self.path = self._folder.path / "servers"
        self.path.mkdir(mode=0o700)
        # Where nobody closes, the end of the program does; a forked one owns nothing of this.
        weakref.finalize(self, _remove_own, self._folder.path, os.getpid())

    async def remove(self, folder: Path) -> None:
        """Remove one server's folder, once the server has ended. Any number of times."""
        try:
            await asyncio.to_thread(remove_tree, folder)
        except RuntimeError:  # Python is ending and starts no threads any more
            remove_tree(folder)

    async def close(self) -> None:
        """Remove everything."""
        await self.remove(self._folder.path)
        self._folder.close()


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        remove_tree(folder)
