"""What a command does to a data directory: in whose name, and written to its ledger."""

from __future__ import annotations

import os
import pwd
from functools import partial
from pathlib import Path

from bascule.app.settings import Settings
from bascule.auth.tokens import Note


def whoever() -> str:
    """Return in whose name a command of this machine acts."""
    user = os.geteuid()
    try:
        return f"cli:{pwd.getpwuid(user).pw_name}"
    except KeyError:  # a container's user need not have a name
        return f"cli:{user}"


def noting(settings: Settings) -> Note | None:
    """Return what writes acts to the ledger of the data directory, if it has one."""
    if not settings.ledger.enabled:
        return None
    from bascule.audit.direct import note_directly  # noqa: PLC0415 - for commands that do something

    return partial(note_directly, Path(settings.data_dir))
