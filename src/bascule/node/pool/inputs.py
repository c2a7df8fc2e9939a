"""What a server asks in the middle of a call, and who answers.

Legacy servers send requests of their own; modern ones answer a call with a wish for input. Both end
here: what was declared goes to the session's ``InputHandler``, everything else is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bascule.errors import DeadlineExceeded, RemoteError
from bascule.model.json import is_object
from bascule.node.ports import InputHandler
from bascule.wire.era import JsonObject
from bascule.wire.rpc_codes import INTERNAL_ERROR, METHOD_NOT_FOUND, MISSING_CAPABILITY
from bascule.wire.strict_json import JsonValue, dumps

ANSWER_SECONDS = 600.0  # a legacy server's question hangs on no call whose deadline could count
MAX_QUESTIONS = 16  # of one connection, open at once

_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_NOBODY = "the tool asks for input, and nobody here was declared able to give it"


class Inputs:
    """A handler and what it declared, or nobody."""

    def __init__(self, handler: InputHandler | None) -> None:
        self._handler = handler
        self._open = 0
        self.capabilities: JsonObject = dict(handler.capabilities) if handler is not None else {}

    async def answer(self, method: str, params: JsonValue) -> JsonValue:
        """Answer one request; raise RemoteError for what was not declared or cannot be given."""
        handler = self._handler
        if handler is None or _CAPABILITY.get(method) not in self.capabilities:
            raise RemoteError(METHOD_NOT_FOUND, f"{method[:80]} was not offered")
        if self._open >= MAX_QUESTIONS:
            raise RemoteError(INTERNAL_ERROR, "too many questions are open already")
        self._open += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await _provided(handler, method, params if is_object(params) else {})
        except TimeoutError:
            raise RemoteError(INTERNAL_ERROR, "nobody answered in time") from None
        finally:
            self._open -= 1

    async def provide_all(self, requests: JsonObject, deadline: float) -> JsonObject:
        """Answer every wish of one round, in order, before the call's deadline."""
        if self._handler is None:
            raise RemoteError(MISSING_CAPABILITY, _NOBODY)
        try:
            async with asyncio.timeout_at(deadline):
                return {key: await self._provide(wish) for key, wish in requests.items()}
        except TimeoutError:
            raise DeadlineExceeded("the input a tool asked for did not come in time") from None

    async def _provide(self, wish: JsonValue) -> JsonValue:
        method = wish.get("method") if isinstance(wish, dict) else None
        if not isinstance(method, str) or not isinstance(wish, dict):
            raise RemoteError(MISSING_CAPABILITY, "the tool asks for input of no known kind")
        return await self.answer(method, wish.get("params"))


async def _provided(handler: InputHandler, method: str, params: Mapping[str, object]) -> JsonObject:
    """Ask the handler, which is somebody else's code: whatever it raises is a refusal."""
    try:
        given = dict(await handler.provide(method, params))
        dumps(given)
    except RemoteError:
        raise
    except Exception as error:
        message = f"the input could not be given: {type(error).__name__}"
        raise RemoteError(INTERNAL_ERROR, message) from error
    return given
