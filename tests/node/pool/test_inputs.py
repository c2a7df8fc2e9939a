"""What a server may ask: what was declared, while there is room, and never for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from bascule.errors import DeadlineExceeded, RemoteError
from bascule.node.pool.inputs import MAX_QUESTIONS, Inputs

Provide = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
FORM: dict[str, Any] = {"method": "elicitation/create", "params": {"message": "Who?"}}


class Handler:
    """Offers elicitation; does what it is told when it is asked."""

    capabilities: Mapping[str, Any] = {"elicitation": {}}

    def __init__(self, answer: Provide) -> None:
        self._answer = answer
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def provide(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((method, params))
        return await self._answer(method, params)


async def accepts(_method: str, _params: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "accept"}


async def soon() -> float:
    return asyncio.get_running_loop().time() + 5


async def test_what_was_declared_is_asked_and_the_rest_is_refused():
    handler = Handler(accepts)
    inputs = Inputs(handler)
    assert await inputs.answer("elicitation/create", {"message": "Who?"}) == {"action": "accept"}
    for method in ("sampling/createMessage", "roots/list", "tools/call", "elicitation"):
        with pytest.raises(RemoteError, match="was not offered") as refusal:
            await inputs.answer(method, {})
        assert refusal.value.rpc_code == -32601
    assert handler.asked == [("elicitation/create", {"message": "Who?"})]


async def test_without_a_handler_everything_is_refused():
    inputs = Inputs(None)
    assert inputs.capabilities == {}
    with pytest.raises(RemoteError, match="was not offered"):
        await inputs.answer("elicitation/create", {})
    with pytest.raises(RemoteError, match="nobody here was declared able"):
        await inputs.provide_all({"who": FORM}, await soon())


async def test_all_wishes_of_a_round_are_answered_by_their_keys():
    inputs = Inputs(Handler(accepts))
    answers = await inputs.provide_all({"a": FORM, "b": FORM}, await soon())
    assert answers == {"a": {"action": "accept"}, "b": {"action": "accept"}}


@pytest.mark.parametrize("wish", [None, 7, [], {}, {"method": 7}, {"params": {}}])
async def test_a_wish_that_is_none_is_refused(wish: Any):
    with pytest.raises(RemoteError, match="no known kind"):
        await Inputs(Handler(accepts)).provide_all({"a": wish}, await soon())


async def test_a_refusal_by_the_handler_reaches_the_server_as_it_is():
    async def refuses(_method: str, _params: Mapping[str, Any]) -> Any:
        raise RemoteError(-1, "the person said no")

    with pytest.raises(RemoteError, match="the person said no") as refusal:
        await Inputs(Handler(refuses)).answer("elicitation/create", {})
    assert refusal.value.rpc_code == -1


@pytest.mark.parametrize("given", [None, 7, {"file": object()}, {1: 2}, KeyError("x"), OSError(5)])
async def test_a_handler_that_fails_is_a_refusal_that_does_not_repeat_its_words(given: Any):
    async def fails(_method: str, _params: Mapping[str, Any]) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    with pytest.raises(RemoteError, match=r"^the input could not be given: [A-Za-z]+ \(-32603\)$"):
        await Inputs(Handler(fails)).answer("elicitation/create", {})


async def test_questions_beyond_the_limit_are_refused_until_there_is_room():
    door = asyncio.Event()

    async def waits(_method: str, _params: Mapping[str, Any]) -> Any:
        await door.wait()
        return {"action": "accept"}

    inputs = Inputs(Handler(waits))
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(inputs.answer("elicitation/create", {})) for _ in range(MAX_QUESTIONS)
        ]
        await asyncio.wait(asked, timeout=0)
        with pytest.raises(RemoteError, match="too many questions"):
            await inputs.answer("elicitation/create", {})
        door.set()
    assert await inputs.answer("elicitation/create", {}) == {"action": "accept"}


async def test_input_that_does_not_come_ends_with_the_call():
    async def sleeps(_method: str, _params: Mapping[str, Any]) -> Any:
        await asyncio.Event().wait()

    now = asyncio.get_running_loop().time()
    with pytest.raises(DeadlineExceeded, match="did not come in time"):
        await Inputs(Handler(sleeps)).provide_all({"who": FORM}, now + 0.02)
