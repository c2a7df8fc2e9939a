"""Whether the tokens of open streams are valid, looked at once for many streams and events.

What was found counts until tokens change, and a second at most, since tokens also expire. Whether
they changed is asked once for each moment: an event that many streams are sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.types import Scope

from bascule.asgi.guard import STILL, TOKENS_STATE
from bascule.auth.identity import Principal
from bascule.clock import Clock

SECONDS = 1.0

Still: TypeAlias = Callable[[], Awaitable[Principal | None]]


class TokenLooks:
    """What was found about the tokens of one kind of stream."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moment: object = None
        self._state: object = None
        self._until = clock.monotonic()
        self._valid: set[str] = set()

    async def refuse_ended(self, scope: Scope, moment: object) -> None:
        """Raise when the token of a stream's request is no longer valid."""
        self._look_at_state(scope[TOKENS_STATE], moment)
        valid, principal = self._valid, scope["principal"]
        if principal.token_id in valid:
            return
        still: Still = scope[STILL]
        found = await still()
        # A person is switched off by the registry, whatever is known of tokens.
        if found is not None and found.person is None:
            valid.add(principal.token_id)

    def _look_at_state(self, state_of: Callable[[], object], moment: object) -> None:
        """Forget what was found, once that may be wrong."""
        now = self._clock.monotonic()
        if moment == self._moment and now < self._until:
            return
        self._moment = moment
        state = state_of()
        if state is None or state != self._state or now >= self._until:
            self._state, self._valid, self._until = state, set(), now + SECONDS
