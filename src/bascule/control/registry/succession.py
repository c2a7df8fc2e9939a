"""A store that says which other one it replaces: nodes that follow that one take it.

That may be another copy of itself: an older one was put in its place, perhaps, and written on. The
copy that says so is a store of its own from then on, as a restored one is, so that nobody takes the
two for one again.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from bascule.audit.events import StoreAnnounced
from bascule.control.registry.store import Author, Store


async def announce(
    store: Store,
    succeeds: str,
    by: Author,
    *,
    at: float,
    note: Callable[[StoreAnnounced], Awaitable[None]] | None,
) -> None:
    """Name the store that this one replaces, noted first; its own id: it gets another."""
    own = (await store.head()).store_id
    renewed = secrets.token_hex(8) if succeeds == own else None
    if note is not None:
        store_id = renewed or own
        await note(StoreAnnounced(timestamp=at, by=by.actor, store_id=store_id, succeeds=succeeds))
    await store.announce(succeeds, renewed)
