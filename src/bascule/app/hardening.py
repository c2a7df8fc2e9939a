"""What protects the memory of ``bascule up``: no core file, and no other process may read it."""

from __future__ import annotations

import ctypes
import logging
import resource
import sys

logger = logging.getLogger("bascule.up")
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Keep memory and environment of this process from other processes of the same user.

    Linux then refuses ``/proc/PID/mem`` and ``environ`` to all but root, and debuggers as well.
    No child is harmed: a program that is started is readable again. The soft limit on core files
    is inherited; a server that wants one raises it, as the hard limit stays.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("other processes of this user may read this one's memory: no prctl here")
