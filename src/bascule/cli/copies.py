"""``bascule registry copy``, ``backup`` and ``restore``: a registry in another place, verified."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import to_builtins

from bascule.app.archive import Archive
from bascule.app.copy_keys import KEY_FILES, CopyKeys, carry_keys
from bascule.app.copy_tables import Part
from bascule.app.copying import Check, Copied, Copying, Source, Target
from bascule.app.data_dir import STORE_FILE
from bascule.app.file_places import DataDirectory
from bascule.app.settings import Settings
from bascule.cli.command import run_async, show, shown
from bascule.cli.command_line import typed
from bascule.cli.configuration import CONFIG, DATA_DIR, DSN, read_settings
from bascule.cli.parser import JSON, Actions, command, option, switch
from bascule.cli.progress import StatusLine
from bascule.cli.secrets import SECRETS_KEY_FD, given_key
from bascule.control.envelope import OuterKey
from bascule.db.dsn import dsn_problem, has_password
from bascule.errors import InvalidRecord

_WITHOUT_SECRETS = switch("--without-secrets", "leave out the secrets, whose key is not here")
_COPY_EPILOG = """\
FROM and TO are data directories, or a PostgreSQL: postgresql://USER@HOST/DATABASE, whose password is
in PGPASSWORD or in a file that PGPASSFILE names. FROM may also be a backup. TO must be empty: it has
everything at the end, or nothing. A data directory that is served is not copied; a PostgreSQL is
read as of one moment.

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
    source, target = _source(arguments.source), _target(arguments.target)
    folder = _key_folder(arguments, source, target)
    if isinstance(target, DataDirectory) and folder != target.path:
        carry_keys(folder, target.path)
    found = _run(source, target, _without(arguments), CopyKeys(folder, key).check)
    return _shown(arguments, found, _next_steps(target, folder, arguments))


def backup(arguments: argparse.Namespace) -> int:
    """Write the registry of the settings to a file."""
    settings = read_settings(arguments)
    found = _run(_place(settings, served=True), Archive(Path(arguments.file)))
    keys = ", ".join(name for name in KEY_FILES if (Path(settings.data_dir) / name).exists())
    return _shown(arguments, found, [f"keep the keys of {settings.data_dir} apart: {keys}"])


def restore(arguments: argparse.Namespace) -> int:
    """Put a backup where the settings say."""
    key = given_key(arguments)
    settings = read_settings(arguments)
    target, folder = _place(settings), Path(settings.data_dir)
    source = Archive(Path(arguments.file))
    found = _run(source, target, _without(arguments), CopyKeys(folder, key).check)
    return _shown(arguments, found, _next_steps(target, folder, arguments))


def _run(
    source: Source,
    target: Target,
    without: frozenset[Part] = frozenset(),
    check: Check | None = None,
) -> Copied:
    return run_async(_copied(source, target, without, check))


async def _copied(
    source: Source, target: Target, without: frozenset[Part], check: Check | None
) -> Copied:
    line = StatusLine()
    async with line.waiting(f"reading {source.where}"):
        return await Copying(source, target, told=line.say, check=check, without=without).run()


def _without(arguments: argparse.Namespace) -> frozenset[Part]:
    return frozenset(("secrets",)) if arguments.without_secrets else frozenset()


# --- places


def _source(text: str) -> DataDirectory | Archive | PostgresPlace:
    path = Path(text)
    if "://" in text:
        return _database(text, "FROM")
    if path.is_file():
        return _registry_file(path) if path.name == STORE_FILE else Archive(path)
    return DataDirectory(path)
