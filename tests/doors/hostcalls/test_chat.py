"""``cchat_*``: what a guest says, sets and reads."""

from __future__ import annotations

import json

from bascule.loop.backend import UpstreamFailed
from tests.doors.hostcalls.talks import AUTO, METRICS, Talk
from tests.loop.fakes import FakeUpstream, says
from tests.loop.talking import USAGE


async def test_a_guest_talks_to_a_model():
    talk = Talk()
    session = talk.create(temperature=0.5)
    talk.say(session, "be short", role="system")
    talk.say(session, b"hello \xff")
    response = talk.send(session)
    talk.receive(response)
    talk.receive(response)
    talk.call("cchat_close", response)
    talk.call("cchat_close", response)
    upstream = FakeUpstream(says("hi", usage=USAGE), name="near")
    talked = await talk.run(upstream)
    [asked] = upstream.asked
    assert asked["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hello \ufffd"},
    ]
    assert asked["temperature"] == 0.5
    body = talked.body
    assert body["choices"][0]["message"]["content"] == "hi"
    assert body["_spear"] == {"backend": "near", "model": "m"}
    assert body["bascule"]["budgets"]["iterations"]["used"] == 1
    assert json.loads(talked.read[1]) == body
    assert talked.answers[-2:] == [0, 0]
    assert "error" not in body
