"""The tools of servers that nodes elsewhere have listed, as far as this replica was told.

A node says which tools a server has whenever somebody tries it or looks at them. That stays known
while the process lives and the server's record is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from bascule.control.registry.service import RegistryService
from bascule.model.json import JsonObject
from bascule.model.server import ServerRecord
from bascule.model.tool import ToolDescriptor, describe

Tools = tuple[ToolDescriptor, ...]


class FarTools:
    """The tools of a registry's servers, by what nodes said last."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service
        self._known: dict[str, tuple[ServerRecord, Tools]] = {}

    def learn(self, server_id: str, definitions: Sequence[JsonObject]) -> None:
        """Take what a node says of a server of the registry."""
        record = self._service.snapshot().servers.get(server_id)
        if record is not None:
            self._known[server_id] = record, tuple(_described(record, definitions))

    def known(self) -> dict[str, Tools]:
        """Return the tools by server, of those whose records are as they were."""
        servers = self._service.snapshot().servers
        self._known = {
            server_id: (record, tools)
            for server_id, (record, tools) in self._known.items()
            if servers.get(server_id) == record
        }
        return {server_id: tools for server_id, (_, tools) in self._known.items()}


def _described(record: ServerRecord, definitions: Sequence[JsonObject]) -> Iterator[ToolDescriptor]:
    for definition in definitions:
        with suppress(ValueError):  # what cannot be used is not shown
            yield describe(record, definition)
