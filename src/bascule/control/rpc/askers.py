"""Whom a node may speak for: clients whose tokens it was handed, about servers that it serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from bascule.asgi.errors import Refused
from bascule.auth.node_tokens import handed_out
from bascule.auth.token_record import TokenRecord
from bascule.clock import Clock
from bascule.control.registry.assignments import Assignments
from bascule.model.approval import ExactCall


class TokenList(Protocol):
    """All tokens of a server (``bascule.auth.tokens.Tokens``)."""

    def state(self) -> object:
        """Return what is another after every change of any token; None while unsure."""
        ...

    async def unaltered(self) -> Sequence[TokenRecord]:
        """Return the records of tokens that nobody edited."""
        ...


class Askers:
    """The clients of nodes, by the ids of their tokens."""

    def __init__(self, tokens: TokenList, assignments: Assignments, clock: Clock) -> None:
        self._tokens = tokens
        self._assignments = assignments
        self._clock = clock
        self._state: object = None
        self._clients: Mapping[str, TokenRecord] = {}

    async def of(self, node: str, call: ExactCall) -> TokenRecord:
        """Return whose call it is, by the token; raise Refused where the node may not say so.

        Raise StoreUnavailable where nobody can tell.
        """
        await self._assignments.refresh()
        share = self._assignments.share(node)
        if not share.serves("server", call.server_id):
            raise _forbidden("server_id", "is no server of this node")
        found = (await self._known()).get(call.token_id or "")
        handed = () if found is None else handed_out((found,), share.tasks)
        if found is None or not handed or not self._lives(found):
            raise _forbidden("token_id", "is of no client of this node, or not any more")
        if call.caller != found.name:
            raise _forbidden("caller", "is not the name of the token")
        if call.task_id is None or call.task_id != found.task_id:
            raise _forbidden("task_id", "is not the task of the token")
        named = call.person is not None if found.acts_for_users else call.person == found.person
        if not named:
            raise _forbidden("person", "is not one that the token speaks for")
        return found

    async def living(self) -> Collection[str]:
        """Return the ids of the tokens whose questions can still be of use."""
        return {id for id, one in (await self._known()).items() if self._lives(one)}

    async def _known(self) -> Mapping[str, TokenRecord]:
        state = self._tokens.state()
        if state is None or state != self._state:
            found = await self._tokens.unaltered()
            self._clients = {one.id: one for one in found if one.role == "client"}
            self._state = state  # of before they were read: what came since is looked at again
        return self._clients

    def _lives(self, record: TokenRecord) -> bool:
        return record.expires_at is None or record.expires_at > self._clock.now()


def _forbidden(field: str, words: str) -> Refused:
    return Refused("forbidden", f"call.{field}: {words}", details={"field": f"call.{field}"})
