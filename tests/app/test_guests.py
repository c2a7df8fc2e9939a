"""A guest that reaches what a server elsewhere serves: its tools, and its models turn by turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.datastructures import Headers

from bascule.app.guests import served
from bascule.asgi.serve import Serving
from bascule.doors.hostcalls.host import Host
from bascule.node.bridge.opening import Opening
from tests.doors.chat.site import READ, Site
from tests.doors.hostcalls.talks import AUTO, Talk
from tests.loop.fakes import asks, call, says


@pytest.mark.requirement("hostcalls:one-loop")
async def test_the_server_is_asked_for_single_turns_in_the_persons_name():
    site, asked = Site(), list[Headers]()
    steps = iter((asks(call(READ)), says("read")))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/v1/chat/completions":
            asked.append(Headers(scope=scope))
            site.upstream.raw.chunks = [json.dumps(next(steps)).encode()]
        await site.app(scope, receive, send)

    minted = await site.tokens.mint("agents", "client", task_id="open", acts_for_users=True)
    talk = Talk()
    session = talk.create()
    talk.say(session, "read")
    talk.receive(talk.send(session, AUTO))
    opening, host = Opening(person="ann"), Host(listener=print)
    async with (
        Serving(app) as server,
        served(host, opening, url=server.url, token=minted.token) as given,
    ):
        reached: dict[str, Any] = {
            "models": given.models,
            "bridge": given.bridge,
            "opening": opening,
        }
        talked = await talk.run(site.upstream, **reached)
    assert talked.body["choices"][0]["message"]["content"] == "read"
    assert len(asked) == len(site.upstream.forwarded) == 2  # as they were sent: no loop there
    assert {one["x-bascule-enabled"] for one in asked} == {"false"}
    assert {one["x-bascule-user"] for one in asked} == {"ann"}
    [called] = site.world.ledger.calls()
    assert (called.tool_name, called.person, called.status) == ("read", "ann", "ok")
