"""With MCP off, the door is not there: requests and answers pass byte for byte."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from bascule.loop.backend import UpstreamFailed
from tests.doors.chat.site import READ, TASKS, Site
from tests.loop.fakes import says
from tests.waits import SOON_SECONDS

ODD = (
    b'{ "model" : "m",\n "messages": [{"role":"wizard","content":"\\u00e9"}], "n": 5,'
    b' "temperature": 1.0, "seed": 12345678901234567890, "tool_choice": "x" }'
)
ANSWER = b'{ "id":"x",  "choices" : [ ], "extra": 1.50 }\n'


@pytest.mark.requirement("chat:disabled-unchanged", "chat:default-none")
@pytest.mark.parametrize("task", ["off", "bare"])
async def test_request_and_answer_are_unchanged_byte_for_byte(site: Site, task: str):
    site.upstream.raw.chunks = [ANSWER[:7], ANSWER[7:]]
    site.upstream.raw.headers = {"content-type": "application/json", "x-ratelimit-limit": "9"}
    status, headers, answer = await site.post(ODD, task)
    assert (status, answer) == (200, ANSWER)
    assert site.upstream.forwarded == [ODD]
    assert (headers["content-type"], headers["x-ratelimit-limit"]) == ("application/json", "9")
    assert b"bascule" not in answer


async def test_a_stream_passes_as_it_is(site: Site):
    events = [b'data: {"a": 1}\n\n', b": odd comment\n\n", b"data: [DONE]\n\n"]
    site.upstream.raw.chunks = events
    site.upstream.raw.headers = {"content-type": "text/event-stream"}
    status, headers, answer = await site.post(b'{"model":"m","stream":true}', "off")
    assert (status, answer) == (200, b"".join(events))
    assert headers["content-type"] == "text/event-stream"


async def test_an_upstreams_own_error_passes_as_it_is(site: Site):
    site.upstream.raw.status = 422
    site.upstream.raw.chunks = [b'{"detail": "odd"}']
    status, _, answer = await site.post(ODD, "off")
    assert (status, answer) == (422, b'{"detail": "odd"}')


@pytest.mark.requirement("chat:session-params")
async def test_a_request_may_switch_mcp_off(site: Site):
    sent = {"model": "m", "messages": [], "temperature": 1.0}
    await site.post(json.dumps({**sent, "mcp": {"enabled": False}}).encode())
    await site.post(ODD, headers={"X-Bascule-Enabled": "false"})
    without, unchanged = site.upstream.forwarded
    assert json.loads(without) == sent
    assert unchanged == ODD


async def test_only_the_name_of_the_backend_is_taken_out_of_the_model(site: Site):
    await site.post(b'{"messages": [1.0, 12345678901234567890], "model": "fake/m"}', "off")
    assert site.upstream.forwarded == [b'{"messages":[1.0,12345678901234567890],"model":"m"}']


async def test_a_task_that_is_switched_on_takes_effect_at_the_next_request(site: Site):
    token = {"Authorization": f"Bearer {await site.token('off')}"}
    sent = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    await site.post(sent, None, token)
    site.world.apply(tasks={**TASKS, "off": {"enabled": True, "default_server_ids": ["fs"]}})
    upstream = site.script(says("Hi."))
    status, _, answer = await site.post(sent, None, token)
    assert (status, len(upstream.forwarded)) == (200, 1)
    assert READ in json.dumps(upstream.asked)
    assert json.loads(answer)["bascule"]["revision"] == 2


async def test_an_upstream_that_cannot_be_reached_is_a_bad_gateway(site: Site):
    site.upstream.raw.failure = UpstreamFailed("cannot be reached")
    status, _, answer = await site.post(ODD, "off")
    assert (status, json.loads(answer)["error"]["code"]) == (502, "upstream_failed")


async def test_a_caller_who_hangs_up_ends_the_upstreams_answer(site: Site):
    site.upstream.raw.hang = True
    headers = {
        "Authorization": f"Bearer {await site.token('off')}",
        "Content-Type": "application/json",
    }
    async with aiohttp.ClientSession() as http, asyncio.timeout(SOON_SECONDS):
        async with http.post(
            f"{site.url}/v1/chat/completions", data=ODD, headers=headers
        ) as answer:
            await answer.content.readany()
            answer.close()
        await site.upstream.raw.ended.wait()
