"""Every known tool with what is the same of it in every answer, kept until something moves."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from bascule.control.registry.offload import apart
from bascule.control.registry.service import RegistryService
from bascule.model.snapshot import Snapshot
from bascule.policy.access import Catalogue
from bascule.policy.verdicts import Facts, facts_of


class Shelf(Struct, frozen=True):
    """The known tools of a registry; what is made of it may be kept as long as it is the same."""

    registry: Snapshot
    known: Catalogue
    facts: Facts

    @property
    def size(self) -> int:
        """Return how many tools there are."""
        return sum(map(len, self.facts.values()))


class ToolShelf:
    """The shelf of a registry's service, looked at again only when records or lists moved.

    ``environment`` is that of the node, by which profiles narrow its sessions.
    """

    def __init__(self, service: RegistryService, environment: str | None = None) -> None:
        self.service = service
        self.environment = environment
        self._kept = Shelf(Snapshot(), {}, {})

    async def current(self) -> Shelf:
        """Return the tools as they are now; nobody is asked for them."""
        registry, known = self.service.snapshot(), self.service.known_tools()
        kept = self._kept
        if kept.registry is registry and kept.known == known:
            return kept
        before, now = kept.registry, registry
        if (before.servers, before.platform, kept.known) == (now.servers, now.platform, known):
            facts = kept.facts
        else:
            size = sum(map(len, known.values()))
            facts = await apart(size, partial(facts_of, registry, known))
        self._kept = Shelf(registry, known, facts)
        return self._kept
