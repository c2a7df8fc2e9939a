"""Whom a node may speak for: the clients whose tokens it was handed, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from bascule.asgi.errors import Refused
from bascule.auth.node_tokens import handed_out
from bascule.auth.token_record import TokenRecord
from bascule.clock import Clock
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

    def __init__(self, tokens: TokenList, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._state: object = None
        self._clients: Mapping[str, TokenRecord] = {}
        #: The tasks that a node is assigned; None is all.
        self.tasks_of: Callable[[str], Collection[str] | None] = lambda node: None

    async def of(self, node: str, call: ExactCall) -> TokenRecord:
        """Return whose call it is, by the token; raise Refused where the node may not say so."""
        found = (await self._living()).get(call.token_id or "")
        if found is None or not handed_out((found,), self.tasks_of(node)):
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
        return (await self._living()).keys()

    async def _living(self) -> Mapping[str, TokenRecord]:
        state = self._tokens.state()
        if state is None or state != self._state:
            found = await self._tokens.unaltered()
            self._clients = {one.id: one for one in found if one.role == "client"}
            self._state = state  # of before they were read: what came since is looked at again
        now = self._clock.now()
        return {
            id: one
            for id, one in self._clients.items()
            if one.expires_at is None or one.expires_at > now
        }


def _forbidden(field: str, words: str) -> Refused:
    return Refused("forbidden", f"call.{field}: {words}", details={"field": f"call.{field}"})
