"""Nodes' reports in memory: the twin of those on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from msgspec.structs import replace

from bascule.control.registry.nodes import Heard
from bascule.control.registry.status import NodeReport
from bascule.model.status import ServerStatus


class MemoryReports:
    """``NodeReports`` that last as long as their process."""

    def __init__(self) -> None:
        self._turns = count(1)
        self._last = 0
        self._nodes: dict[str, tuple[int, float, NodeReport | None]] = {}
        self._notes: dict[str, tuple[int, float, tuple[str, ...]]] = {}
        self._words: dict[tuple[str, str], tuple[int, ServerStatus | None]] = {}

    async def report(self, report: NodeReport) -> None:
        self._keep(report.node, report.at, report)

    async def forget_node(self, node: str, at: float) -> None:
        self._keep(node, at, None)

    def _keep(self, node: str, at: float, report: NodeReport | None) -> None:
        self._last = turn = next(self._turns)
        self._nodes[node] = (turn, at, report and replace(report, servers=()))
        said = {s.server_id: s for s in report.servers} if report is not None else {}
        known = {key[1]: word for key, (_, word) in self._words.items() if key[0] == node}
        for server_id in {*known, *said}:
            if known.get(server_id) != said.get(server_id):
                self._words[node, server_id] = (turn, said.get(server_id))

    async def note(self, replica: str, nodes: Sequence[str], at: float) -> None:
        self._last = next(self._turns)
        self._notes[replica] = (self._last, at, (*nodes,))

    async def heard(self, since: int) -> Heard:
        return Heard(
            place=self._last,
            nodes={node: one for node, (turn, _, one) in self._nodes.items() if turn > since},
            words=[(*key, word) for key, (turn, word) in self._words.items() if turn > since],
            notes=[(at, nodes) for turn, at, nodes in self._notes.values() if turn > since],
            whole=not since,
        )

    async def forget_before(self, at: float) -> None:
        for node in [node for node, (_, said_at, _) in self._nodes.items() if said_at < at]:
            del self._nodes[node]
        for replica in [one for one, (_, noted, _) in self._notes.items() if noted < at]:
            del self._notes[replica]
        for key in [key for key in self._words if key[0] not in self._nodes]:
            del self._words[key]
