"""The servers that nobody uses: their status is written once, however often it is asked for.

A node may know ten thousand records and be connected to three of them, and is asked how they stand
often.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import groupby

from bascule.model.server import ServerRecord
from bascule.model.status import ServerStatus


class Resting:
    """The status of every record without a connection, by server; the records do not change."""

    def __init__(self, records: Mapping[str, ServerRecord]) -> None:
        self.records = records
        self._ids = sorted(records)
        self._statuses = [_at_rest(records[server_id]) for server_id in self._ids]

    def beside(self, connected: Iterable[ServerStatus]) -> list[ServerStatus]:
        """Return all statuses, by server, with those of connections in their places."""
        found = list(self._statuses)
        by_server = sorted(connected, key=_server)
        for server_id, own in reversed([(s, list(o)) for s, o in groupby(by_server, _server)]):
            place = bisect_left(self._ids, server_id)
            known = server_id in self.records
            found[place : place + known] = own
        return found


def _server(status: ServerStatus) -> str:
    return status.server_id


def _at_rest(record: ServerRecord) -> ServerStatus:
    state = "disconnected" if record.enabled else "disabled"
    return ServerStatus(server_id=record.server_id, state=state)
