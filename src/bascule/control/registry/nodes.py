"""Where nodes' reports are kept: beside the records, and never moving the revision.

Several processes share what is kept: each reads what changed since it last read (``Heard``), never
all of it. ``sqlite_reports.py`` and ``postgres_reports.py`` implement it, and tests have a twin in
memory; ``standing.py`` has it all at hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from bascule.control.registry.status import NodeReport
from bascule.model.status import ServerStatus

#: A node's word on a server; None where it says nothing of it any more.
Word: TypeAlias = tuple[str, str, ServerStatus | None]
#: When nodes were following a replica, and which.
Note: TypeAlias = tuple[float, Sequence[str]]


class Heard(Struct, frozen=True, kw_only=True):
    """What nodes said since a place; the next question begins at ``place``.

    Of a node, ``nodes`` has what it says of itself, None if it was forgotten; ``words`` has what
    changed of what it says of servers. ``notes`` are of the streams that replicas hold. ``whole``
    is all there is, in place of what was known.
    """

    place: int
    nodes: Mapping[str, NodeReport | None]
    words: Sequence[Word]
    notes: Sequence[Note] = ()
    whole: bool = False


class NodeReports(Protocol):
    """Keeps the last report of every node."""

    async def report(self, report: NodeReport) -> None:
        """Keep what a node says, in place of what it said before; write only what differs."""
        ...

    async def forget_node(self, node: str, at: float) -> None:
        """Drop what a node said."""
        ...

    async def note(self, replica: str, nodes: Sequence[str], at: float) -> None:
        """Keep, for other replicas, which nodes follow one now, in place of what it noted last."""
        ...

    async def heard(self, since: int) -> Heard:
        """Return what changed since a place, some of it perhaps again; 0 is the beginning."""
        ...

    async def forget_before(self, at: float) -> None:
        """Drop all that was said last before a time, without a word to whoever reads on."""
        ...


def texts_of(report: NodeReport) -> dict[str, str]:
    """Return what a report says of each server, as text that is the same for the same words."""
    found = {s.server_id: msgspec.json.encode(s).decode() for s in report.servers}
    return dict(sorted(found.items()))


def digest_of(texts: Mapping[str, str]) -> str:
    """Return a name for what a report says of all servers."""
    digest = hashlib.sha256()
    for text in texts.values():
        digest.update(text.encode())
    return digest.hexdigest()[:32]


def word_of(node: str, server_id: str, text: str | None) -> Word:
    """Return a word from its text."""
    status = None if text is None else msgspec.json.decode(text, type=ServerStatus)
    return node, server_id, status


def node_of(
    node: str, revision: int, state: str | None, at: float, reason: str | None
) -> NodeReport | None:
    """Return what a node says of itself; without a state it was forgotten."""
    if state is None:
        return None
    return NodeReport(node=node, revision=revision, state=state, at=at, reason=reason)
