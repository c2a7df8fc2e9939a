"""The client tokens as nodes are given them, looked at again when any token changes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from bascule.auth.keys import KeyLabel
from bascule.auth.node_tokens import handed_out
from bascule.auth.token_record import TokenRecord
from bascule.control.registry.offload import apart
from bascule.control.rpc.told import token_message, token_messages


class KeptTokens(Protocol):
    """All tokens of a server (``bascule.auth.tokens.Tokens``)."""

    @property
    def key_for(self) -> Callable[[KeyLabel], bytes]:
        """Return what gives the derived keys."""
        ...

    def state(self) -> object:
        """Return what is another after every change of any token; None while unsure."""
        ...

    async def unaltered(self) -> tuple[TokenRecord, ...]:
        """Return the records of tokens that nobody edited."""
        ...


class Handed(Struct, frozen=True):
    """The tokens of some tasks, as messages; ``version`` is what they are called together.

    It is the same at every replica.
    """

    version: str
    messages: tuple[bytes, ...]


class HandedTokens:
    """What nodes are sent of tokens, encoded once for all who serve alike. ``look`` before use."""

    def __init__(self, tokens: KeptTokens) -> None:
        self._tokens = tokens
        self._state: object = None
        self._looking = asyncio.Lock()
        self._records: tuple[TokenRecord, ...] | None = None
        self._nodes: frozenset[str] = frozenset()
        self._handed: dict[frozenset[str] | None, Handed] = {}
        self._encoding = asyncio.Lock()
        #: Moves on whenever a node has to be told something, or one of their own tokens changed.
        self.number = 0

    async def look(self) -> bool:
        """Say whether followers have to look; raise StoreUnavailable where nobody can tell."""
        async with self._looking:
            state = self._tokens.state()
            if state is not None and state == self._state:
                return False
            found = await self._tokens.unaltered()
            nodes = frozenset(one.id for one in found if one.role == "node")
            records = handed_out(found)
            changed = (records, nodes) != (self._records, self._nodes)
            if changed:
                self._records, self._nodes, self._handed = records, nodes, {}
                self.number += 1
            self._state = state  # of before they were read: what came since is looked at again
            return changed

    async def of(self, tasks: frozenset[str] | None) -> Handed:
        """Return what a node is given that serves these tasks; None is all."""
        if (known := self._handed.get(tasks)) is not None:
            return known
        async with self._encoding:
            handed = self._handed  # of the tokens at hand: others begin with none
            found = handed.get(tasks)
            if found is None:
                records = handed_out(self._records or (), tasks)
                found = handed[tasks] = await apart(len(records), lambda: _encoded(records))
            return found


def _encoded(records: Sequence[TokenRecord]) -> Handed:
    """Return the name of some tokens together, and them as messages."""
    digest = hashlib.sha256()
    for one in records:
        digest.update(token_message(one).SerializeToString(deterministic=True))
    version = digest.hexdigest()[:32]
    return Handed(version, token_messages(version, records))
