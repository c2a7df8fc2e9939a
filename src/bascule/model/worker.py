"""Workers: processes of one node on one machine, each with a number.

What only one of them knows has its mark in its id, so that the others know whom to ask.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_WORKERS = 64
#: The metadata of a call by which a worker says which one it is; its token says of which node.
WORKER_METADATA = "bascule-worker"
WorkerCount = Annotated[int, Meta(ge=1, le=MAX_WORKERS)]
#: The mark as a regular expression; what stands before it ends otherwise than in ``w`` and digits.
MARK = r"w([1-9][0-9]?)"
_LAST = re.compile(rf"{MARK}\Z")
_NUMBERED = re.compile(r"/[0-9]+\Z")


def mark_of(worker: int | None) -> str:
    """Return what stands in the ids of a worker; nothing where there is but one process."""
    return "" if worker is None else f"w{worker}"


def marked_worker(id: str) -> int | None:
    """Return whose an id is that ends in a mark."""
    found = _LAST.search(id)
    return None if found is None else int(found[1])


def worker_name(node: str, worker: int | None) -> str:
    """Return the name of a node's process: of its own, where it is one of several."""
    return node if worker is None else f"{node}/{worker}"


def node_of(name: str) -> str:
    """Return whose worker a name is of; of no worker's, the name."""
    return _NUMBERED.sub("", name)


class WorkerStanding(Struct, frozen=True, kw_only=True):
    """How a worker stands, as whoever started it knows; ``reason`` says why it is not there."""

    number: int
    state: Literal["starting", "serving", "down"]
    pid: int | None = None
    #: How often it was started again.
    restarts: int = 0
    reason: str | None = None
