"""What a database says when it cannot do what is asked of it."""

from __future__ import annotations

from bascule.errors import BasculeError


class StoreUnavailable(BasculeError):
    """The store cannot take this now. Nothing of it was acknowledged."""

    code = "store_unavailable"


class OutcomeUnknown(StoreUnavailable):
    """The connection broke while a write was being committed: it may have happened, or not.

    Whoever can tell afterwards does so; to everybody else it is a store that is unavailable.
    """
