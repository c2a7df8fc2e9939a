"""Who knows tokens, as the guard asks them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bascule.auth.identity import Principal


class Verifier(Protocol):
    """Knows whose token a token is (``bascule.auth.tokens.Tokens`` does)."""

    async def verify(self, token: str) -> Principal | None:
        """Return whose it is, or None."""
        ...


@runtime_checkable
class Recaller(Protocol):
    """A verifier that remembers tokens, for as long as nothing about any of them changes."""

    def recall(self, token: bytes) -> Principal | None:
        """Return whose it is, if that is known without asking; None says nothing."""
        ...

    async def still(self, token: str) -> Principal | None:
        """Return whose it is, or None, and do not take that for a use of it."""
        ...

    def state(self) -> object:
        """Return what is another after every change of any token; None while unsure."""
        ...
