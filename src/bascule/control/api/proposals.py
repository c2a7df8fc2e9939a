"""What waits for an administrator, over HTTP: writes that would give a credential a new target.

Accepting one is an endpoint of its record.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.json import json_response
from bascule.clock import rfc3339
from bascule.control.registry.acceptance import present
from bascule.control.registry.masks import masked
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Proposal
from bascule.policy.pairs import Pair, pairs_of, shown
from bascule.wire.api.proposals import ProposalList, ProposalShown, ProposedPair


class Proposals:
    """The endpoint of what is proposed."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    async def list(self, request: Request) -> Response:
        """List what waits, the oldest first, each with the pairs that are new in it."""
        del request
        waiting = await self._service.proposals()
        known = present(self._service.view) if waiting else frozenset[Pair]()
        return json_response(ProposalList(tuple(_shown(one, known) for one in waiting)))


def _shown(proposal: Proposal, known: frozenset[Pair]) -> ProposalShown:
    pairs = sorted(pairs_of(proposal.record) - known)
    return ProposalShown(
        kind=proposal.kind,
        id=proposal.id,
        proposal=proposal.digest,
        actor=proposal.actor,
        at=rfc3339(proposal.at),
        base=proposal.base,
        pairs=tuple(ProposedPair(**shown(pair)) for pair in pairs),
        record=masked(proposal.kind, proposal.record),
    )
