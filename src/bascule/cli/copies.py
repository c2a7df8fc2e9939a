"""``bascule registry copy``, ``backup`` and ``restore``: a registry in another place, verified."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from bascule.app.archive import Archive
from bascule.app.copy_keys import KEY_FILES, SECRETS_KEY, SERVER_KEY, CopyKeys
from bascule.app.copy_tables import Part
from bascule.app.copying import Check, Copied, Copying, NotCopied, Source, Target
from bascule.app.data_dir import STORE_FILE
from bascule.app.file_places import DataDirectory
from bascule.app.settings import Settings
from bascule.app.shared_registry import with_shared
from bascule.cli.command import run_async, show, shown
from bascule.cli.command_line import typed
from bascule.cli.configuration import CONFIG, DATA_DIR, DSN, read_settings
from bascule.cli.parser import JSON, Actions, command, option, switch
from bascule.cli.progress import StatusLine
from bascule.cli.secrets import SECRETS_KEY_FD, given_key
from bascule.db.dsn import dsn_problem, has_password

if TYPE_CHECKING:
    from bascule.app.postgres_place import PostgresPlace

_WITHOUT_SECRETS = switch("--without-secrets", "leave out the secrets, whose key is not here")
_COPY_EPILOG = """\
FROM and TO are data directories, or a PostgreSQL: postgresql://USER@HOST/DATABASE, whose password
is in PGPASSWORD or in a file that PGPASSFILE names. FROM may also be a backup. TO must be empty: it
has everything at the end, or nothing. A data directory that is served is not copied; a PostgreSQL
is read as of one moment.

examples:
  bascule registry copy ~/.local/share/bascule postgresql://bascule@db.example/bascule
  bascule registry copy postgresql://bascule@db.example/bascule back --keys /srv/replica
"""
_BACKUP_EPILOG = """\
It may be served meanwhile. No key is in a backup: keep those apart.

examples:
  bascule registry backup registry-monday.backup
  BASCULE_DSN=postgresql://bascule@db.example/bascule bascule registry backup monday.backup
"""
_RESTORE_EPILOG = """\
Into an empty data directory that has the keys, or into an empty PostgreSQL. The registry is another
one from then on, which names the one that was backed up; nodes take it for its successor.

examples:
  bascule registry restore monday.backup --data-dir restored
"""


def add_copying(actions: Actions) -> None:
    """Add the commands that move a registry."""
    command(
        actions,
        "copy",
        "copy a registry to another place, with its tokens, secrets and ledger",
        copy,
        option("source", "FROM", "a data directory, a backup or a PostgreSQL"),
        option("target", "TO", "an empty data directory or PostgreSQL"),
        option("--keys", "DIR", "the data directory with the keys (FROM)"),
        *(_WITHOUT_SECRETS, SECRETS_KEY_FD, JSON),
        epilog=_COPY_EPILOG,
    )
    settings = (DATA_DIR, CONFIG, DSN)
    command(
        actions,
        "backup",
        "write a registry, with its tokens, secrets and ledger, to one file",
        backup,
        option("file", "FILE", "the file to make"),
        *(*settings, JSON),
        epilog=_BACKUP_EPILOG,
    )
    command(
        actions,
        "restore",
        "put a backup into an empty data directory or PostgreSQL",
        restore,
        option("file", "FILE", "the backup"),
        *(*settings, _WITHOUT_SECRETS, SECRETS_KEY_FD, JSON),
        epilog=_RESTORE_EPILOG,
    )


def copy(arguments: argparse.Namespace) -> int:
    """Copy a registry from one place to another."""
    key = given_key(arguments)
    folder = _key_folder(arguments)
    source = _place(arguments, arguments.source, "FROM")
    target = _place(arguments, arguments.target, "TO", keys=folder)
    if isinstance(target, Archive):
        arguments.usage("TO is a file: make a backup with bascule registry backup")
    found = _run(source, target, arguments, CopyKeys(folder, key).check)
    return _told(arguments, found, _next_steps(target, folder))


def backup(arguments: argparse.Namespace) -> int:
    """Write the registry of the settings to a file."""
    settings = with_shared(read_settings(arguments))
    found = _run(_own_place(settings, served=True), Archive(Path(arguments.file)), arguments)
    data = Path(settings.data_dir)
    keys = [name for name in KEY_FILES if (data / name).exists()]
    whose = f"those of {data}: {_list(keys)}" if keys else "those of a replica's data directory"
    return _told(arguments, found, [f"no key is in it: keep apart {whose}"])


def restore(arguments: argparse.Namespace) -> int:
    """Put a backup where the settings say."""
    key = given_key(arguments)
    settings = read_settings(arguments)
    target, folder = _own_place(settings), Path(settings.data_dir)
    found = _run(Archive(Path(arguments.file)), target, arguments, CopyKeys(folder, key).check)
    return _told(arguments, found, _next_steps(target, folder))


def _run(
    source: Source, target: Target, arguments: argparse.Namespace, check: Check | None = None
) -> Copied:
    left_out = vars(arguments).get("without_secrets", False)
    without: frozenset[Part] = frozenset(("secrets",) if left_out else ())

    async def main() -> Copied:
        line = StatusLine()
        copying = Copying(source, target, told=line.say, check=check, without=without)
        async with line.waiting(f"reading {source.where}"):
            return await copying.run()

    return run_async(main())


# --- places


def _place(
    arguments: argparse.Namespace, text: str, name: str, *, keys: Path | None = None
) -> DataDirectory | Archive | PostgresPlace:
    """Return the place that a word of the command line names."""
    if "://" not in text:
        path = Path(text)
        if path.is_file() and path.name == STORE_FILE:
            return DataDirectory(path.parent, parts=("registry",))
        return Archive(path) if path.is_file() else DataDirectory(path, keys=keys)
    problem = dsn_problem(text)
    if problem is not None:
        arguments.usage(f"{name}: {problem}")
    if has_password(text):
        hint = "give it in PGPASSWORD, or in a file that PGPASSFILE names"
        arguments.usage(f"{name} has a password, which the list of processes shows: {hint}")
    return _database(text, keys)


def _own_place(settings: Settings, *, served: bool = False) -> DataDirectory | PostgresPlace:
    """Return the place that the settings name."""
    data = Path(settings.data_dir)
    if settings.store.dsn is None:
        return DataDirectory(data, served=served)
    return _database(settings.store.listen_dsn or settings.store.dsn, data)


def _database(dsn: str, keys: Path | None) -> PostgresPlace:
    try:
        from bascule.app.postgres_place import PostgresPlace  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise NotCopied(
            f"PostgreSQL's driver is not installed ({error.name}): pip install 'bascule[scale]'"
        ) from error
    return PostgresPlace(dsn, keys=keys)


def _key_folder(arguments: argparse.Namespace) -> Path:
    """Return the data directory whose keys open what is copied."""
    if arguments.keys is not None:
        return Path(arguments.keys)
    for text in (arguments.source, arguments.target):
        if "://" not in text and not Path(text).is_file():
            return Path(text)
    arguments.usage("give the data directory with the keys: --keys DIR")
    raise AssertionError


# --- words


def _told(arguments: argparse.Namespace, found: Copied, notes: Sequence[str]) -> int:
    return show(arguments, {**to_builtins(found), "notes": notes}, *_lines(found), notes=notes)


def _lines(found: Copied) -> Iterator[str]:
    yield shown(f"copied {found.source} to {found.target}, and read it back")
    rows = Counter[str]()
    for table in found.tables:
        rows[table.name.partition(".")[0]] += table.rows
    for part, count in rows.items():
        yield f"  {part:10}{count} rows{_more(part, found)}"
    if found.predecessor:
        yield f"  store {found.store_id}, which names {found.predecessor} as the one before it"


def _more(part: str, found: Copied) -> str:
    return {
        "registry": f", revision {found.revision}",
        "ledger": ", whose chain was verified",
    }.get(part, "")


def _next_steps(target: Target, folder: Path) -> list[str]:
    if isinstance(target, DataDirectory):
        place = argparse.Namespace(data_dir=str(target.path))
        return [f"serve it: {typed('up', place)}"]
    keys = [name for name in (SERVER_KEY, SECRETS_KEY) if (folder / name).exists()]
    where = f"every replica needs these keys of {folder} in its data directory, mode 0600"
    return [
        f"{where}: {_list(keys)}",
        "then check each machine: bascule preflight registry; and serve: bascule registry serve",
    ]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "there is none"
