"""The tokens that a node knows: digests that its control plane handed out, and the key of those.

A node that is stolen is not the fleet: it has no token of anybody who governs, none of a task that
it does not serve, neither the root key nor the one that seals the rows of tokens. With what it has
it can tell whose a token is that somebody shows it, and make none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from msgspec import convert
from msgspec.structs import replace

from bascule.auth.identity import Principal
from bascule.auth.keys import KeyLabel
from bascule.auth.token_record import PREFIX, TokenRecord, principal_of, token_digest
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.model.role import TokenRole

#: Who uses what a node serves: its doors, and its metrics. Others speak to the control plane.
ROLES_AT_NODES: frozenset[TokenRole] = frozenset({"client", "viewer"})
#: The derived keys that a node is given: to know tokens, and to read what any node handed to a
#: client: the ids of its sessions and its cursors.
KEYS_OF_NODES: tuple[KeyLabel, ...] = ("token-digest", "mcp-session", "cursor")
#: How many tokens that ended are remembered.
_REMEMBERED = 10_000


def handed_out(
    records: Iterable[TokenRecord], tasks: Collection[str] | None = None
) -> tuple[TokenRecord, ...]:
    """Return what a node is given of tokens that nobody edited: those that have a use there.

    ``tasks`` are those that the node is assigned; None is all. A token that is still kept under the
    digest of the root, from before that had derived keys, is known to no node before its next use
    at the control plane.
    """
    return tuple(replace(one, seal=b"") for one in records if _is_used_at_node(one, tasks))


def _is_used_at_node(record: TokenRecord, tasks: Collection[str] | None) -> bool:
    if record.role not in ROLES_AT_NODES or record.process is not None:
        return False
    own = record.tasks if record.role == "viewer" else (record.task_id,)
    return own is None or tasks is None or any(task in tasks for task in own)


def keys_handed_out(key_for: Callable[[KeyLabel], bytes]) -> dict[KeyLabel, bytes]:
    """Return the derived keys that a node is given (``Tokens.key_for`` has them)."""
    return {label: key_for(label) for label in KEYS_OF_NODES}


def taken(
    tokens: Iterable[object], keys: Mapping[str, bytes]
) -> tuple[tuple[TokenRecord, ...], dict[KeyLabel, bytes]]:
    """Return what a node was told of tokens and keys (``RpcSource``) as ``NodeTokens`` takes it."""
    records = tuple(convert(one, TokenRecord, from_attributes=True) for one in tokens)
    return records, {label: keys[label] for label in KEYS_OF_NODES if label in keys}


class KeyNotGiven(BasculeError):
    """A node has no key for something."""

    def __init__(self, label: KeyLabel, given: Collection[str]) -> None:
        super().__init__(
            f"this node was given no key for {label!r}; it has those for: "
            f"{', '.join(sorted(given)) or 'nothing'}"
        )


class NodeTokens:
    """Knows whose tokens are, as ``Tokens`` does, by what a node was given."""

    def __init__(
        self,
        tokens: Iterable[TokenRecord] = (),
        keys: Mapping[KeyLabel, bytes] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        patience: float = 0.0,
    ) -> None:
        """Know tokens; of one that nobody has, news are awaited for ``patience`` seconds."""
        #: Raises SessionRefused for a person who is not known, or switched off.
        self.standing: Callable[[str], object] | None = None
        self._clock = clock
        self._patience = patience
        self._news = asyncio.Event()
        self._takes = 0
        self._by_digest: dict[bytes, TokenRecord] = {}
        #: Those that ended: of them no news are awaited.
        self._ended: dict[bytes, None] = {}
        self.take(tokens, keys or {})

    def take(self, tokens: Iterable[TokenRecord], keys: Mapping[KeyLabel, bytes]) -> None:
        """Know these, and no others, from the next look on; links and pages are nobody's here."""
        self._records = tuple(t for t in tokens if t.role != "link" and t.process is None)
        before = self._by_digest
        self._by_digest = {record.digest: record for record in self._records}
        gone = [digest for digest in before if digest not in self._by_digest]
        self._ended = dict.fromkeys([*self._ended, *gone][-_REMEMBERED:])
        self._keys = dict(keys)
        self._takes += 1
        self._news.set()
        self._news = asyncio.Event()

    def key_for(self, label: KeyLabel) -> bytes:
        """Return the key for one use; raise KeyNotGiven where the node has none."""
        try:
            return self._keys[label]
        except KeyError:
            raise KeyNotGiven(label, self._keys) from None

    async def verify(self, token: str) -> Principal | None:
        """Return whose token this is; None if it is nobody's here, or has expired.

        Raise SessionRefused for a token of somebody who may do nothing now.
        """
        shown = token.encode("utf-8", "replace")
        principal = self._principal(shown)
        if principal is None and self._patience and self._may_be_new(shown):
            principal = await self._awaited(shown)
        if principal is not None and _is_asked_about(principal) and self.standing is not None:
            self.standing(principal.person or "")
        return principal

    def _may_be_new(self, token: bytes) -> bool:
        """Say whether somebody may have just made a token: nobody here knew it until now."""
        key = self._keys.get("token-digest")
        if key is None or not token.startswith(PREFIX.encode()):
            return False
        digest = token_digest(key, token)
        return digest not in self._by_digest and digest not in self._ended

    async def _awaited(self, token: bytes) -> Principal | None:
        """Return whose token this is once it was told of; somebody may have just made it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while (found := self._principal(token)) is None:
                    await self._news.wait()
                return found
        return None

    async def still(self, token: str) -> Principal | None:
        """Return as ``verify`` whose token this is: a node notes no uses."""
        return await self.verify(token)

    def recall(self, token: bytes) -> Principal | None:
        """Return whose token this is, unless their person has to be asked about each time."""
        principal = self._principal(token)
        return None if principal is None or _is_asked_about(principal) else principal

    def state(self) -> object:
        """Return what is another after every change of any token."""
        return self._takes

    async def unaltered(self) -> tuple[TokenRecord, ...]:
        """Return the records of all tokens that are known here."""
        return self._records

    def _principal(self, token: bytes) -> Principal | None:
        key = self._keys.get("token-digest")
        record = None if key is None else self._by_digest.get(token_digest(key, token))
        if record is None:
            return None
        expired = record.expires_at is not None and record.expires_at <= self._clock.now()
        return None if expired else principal_of(record)


def _is_asked_about(principal: Principal) -> bool:
    """Say whether somebody may have been switched off; a client's person is asked about later."""
    return principal.person is not None and principal.role != "client"
