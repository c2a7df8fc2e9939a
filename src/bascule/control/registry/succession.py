"""A store that says which other one it replaces: nodes that follow that one take it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bascule.audit.events import StoreAnnounced
from bascule.control.registry.store import Author, Store
from bascule.errors import InvalidRecord

#: What to do about nodes that refuse an older or another copy of the store that they follow.
_OTHER_COPY = (
    "nodes that refuse it have seen another copy of it: have each take this one (bascule node "
    "accept), or make it a store of its own (bascule registry backup, then restore)"
)


async def announce(
    store: Store,
    succeeds: str,
    by: Author,
    *,
    at: float,
    note: Callable[[StoreAnnounced], Awaitable[None]] | None,
) -> None:
    """Name the store that this one replaces, noted first; raise InvalidRecord for its own id."""
    store_id = (await store.head()).store_id
    if succeeds == store_id:
        raise InvalidRecord([f"succeeds: {succeeds} is this store itself; {_OTHER_COPY}"])
    if note is not None:
        act = StoreAnnounced(timestamp=at, by=by.actor, store_id=store_id, succeeds=succeeds)
        await note(act)
    await store.announce(succeeds)
