"""In whose name a command acts on a data directory."""

from __future__ import annotations

import os
import pwd


def whoever() -> str:
    """Return in whose name a command of this machine acts."""
    user = os.geteuid()
    try:
        return f"cli:{pwd.getpwuid(user).pw_name}"
    except KeyError:  # a container's user need not have a name
        return f"cli:{user}"
