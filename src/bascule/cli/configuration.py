"""The settings of a command: its flags on top of the environment and ``bascule.toml``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from bascule.app.settings import SETTINGS, Settings, load_settings
from bascule.cli.command import warn
from bascule.cli.parser import Option, option, switch
from bascule.model.json import JsonObject


def read_settings(
    arguments: argparse.Namespace, without: Sequence[str] = (), usual: JsonObject | None = None
) -> Settings:
    """Return the settings; an option that the command does not have counts as not given.

    ``without`` are options of the command that are no settings, though they are called so;
    ``usual`` stands where other commands have the defaults.
    """
    given = {name: value for name, value in vars(arguments).items() if name not in without}
    flags = {setting.flag: given.get(setting.flag) for setting in SETTINGS if setting.flag}
    path: str | None = given.get("config")
    file = None if path is None else Path(path)
    settings, warnings = load_settings(flags, os.environ, file, usual or {})
    warn(warnings)
    return settings


CONFIG = option("--config", "FILE", "read these settings instead of bascule.toml")
DATA_DIR = option("--data-dir", "DIR", "the store, the key and the tokens")
DSN = option("--dsn", "URL", "a PostgreSQL that several processes share; without a password")


WORKERS = option(
    "--workers", "N", "processes that share the port, each with its own servers (1)", type=int
)


def address(port: int) -> tuple[Option, ...]:
    """Return the options that say where a process listens; ``port`` is the usual one."""
    return (
        option("--host", "ADDRESS", "the address to listen on (127.0.0.1)"),
        option("--port", "PORT", f"the port for HTTP ({port}); 0 selects a free one", type=int),
        option("--tls-certificate", "FILE", "the TLS certificate (PEM)"),
        option("--tls-key", "FILE", "the key of the certificate (PEM)"),
        switch("--insecure", "allow HTTP from other machines", default=None),
    )
