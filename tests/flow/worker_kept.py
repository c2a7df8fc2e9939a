"""What one worker keeps, used through another: a session, an output, turns held or parked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.flow.servers import lines_of
from tests.flow.up_process import Json, Up, run
from tests.flow.worker_lines import Line, text_of, worker_of
from tests.waits import SOON_SECONDS, until

#: A turn that needs an approval is parked without a wait.
AT_ONCE = {"BASCULE_CHAT_APPROVAL_WAIT_SECONDS": "0"}
CHAT = "/v1/chat/completions"
OWN_TOOL: Json = {"type": "function", "function": {"name": "own", "parameters": {}}}


async def session_goes_on(here: Line, there: Line, journal: Path) -> None:
    """A legacy MCP session: used, cancelled in, and deleted, through the other worker."""
    client, other = here.mcp(modern=False), there.mcp(modern=False)
    await client.open()
    other.session = client.session
    assert client.session.endswith(".w1")
    called = await other.ask("tools/call", {"name": "mcp__s__echo", "arguments": {"text": "hi"}})
    assert (called.status, text_of(called)) == (200, "hi")
    assert [one for one, _ in called.headers].count("x-request-id") == 1

    client.id = 7
    before = "".join(lines_of(journal)).count("hangs")
    hanging = asyncio.create_task(client.ask("tools/call", {"name": "mcp__s__hangs"}))
    await until(lambda: "".join(lines_of(journal)).count("hangs") > before)
    cancelled = await there.notify("notifications/cancelled", other.session, {"requestId": 7})
    assert cancelled == 202
    async with asyncio.timeout(SOON_SECONDS):
        answer = await hanging
    assert "cancelled" in answer.json["error"]["message"]

    headers = {**there.headers, "Mcp-Session-Id": other.session}
    async with there.http.delete(f"{there.url}/mcp", headers=headers) as ended:
        assert ended.status == 204
    assert (await client.ask("ping")).status == 404


async def rest_of_output(here: Line, there: Line) -> None:
    """An output that was cut: read through the other worker, by both ways."""
    outcome = await here.call("s/much", max_output_bytes=100)
    assert worker_of(outcome) == 1
    handle = outcome["truncated"]["handle"]
    status, part = await there.ask("GET", "/api/v1/tools/output", handle=handle, start="0", end="9")
    assert (status, len(part["text"])) == (200, 9)
    mcp = there.mcp(modern=True)
    asked = {"name": "bascule__read_output", "arguments": {"handle": handle, "end": 5}}
    assert text_of(await mcp.ask("tools/call", asked)) == part["text"][:5]
    gone = handle.replace("w1", "w9")  # of a worker that there is not
    assert (await there.ask("GET", "/api/v1/tools/output", handle=gone))[0] == 404


async def held_turn(here: Line, there: Line) -> None:
    """A turn with results of ours, continued with the caller's own through the other worker."""
    said = {"role": "user", "content": 'call s.echo with {"text": "kept"} and call own'}
    chat: Json = {"model": "rehearsal", "messages": [said], "tools": [OWN_TOOL]}
    status, first = await here.ask("POST", CHAT, chat)
    assert status == 200, first
    message = first["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert "w1_" in call["id"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "mine"}
    again = {**chat, "messages": [said, message, result]}
    status, second = await there.ask("POST", CHAT, again)
    assert status == 200, second
    told = second["choices"][0]["message"]["content"]
    assert "kept" in told
    assert "mine" in told
    lost = json.loads(json.dumps(again).replace(call["id"], call["id"].replace("w1_", "w9_")))
    status, refused = await there.ask("POST", CHAT, lost)
    assert (status, refused["error"]["code"]) == (400, "tool_results_expired")


async def parked_turn(here: Line, there: Line, up: Up) -> None:
    """A turn that waits for approval, resumed through the other worker."""
    turn = await parked(here, there, up)
    status, second = await there.ask("POST", CHAT, turn)
    assert status == 200, second
    assert "careful said: approved" in second["choices"][0]["message"]["content"]
    lost = {**turn, "mcp": {"resume": turn["mcp"]["resume"][:-2] + "w9"}}
    status, refused = await there.ask("POST", CHAT, lost)
    assert (status, refused["error"]["code"]) == (404, "not_found")


async def parked(here: Line, there: Line, up: Up) -> Json:
    """Have a turn parked by the first worker, and approved; return what goes on with it."""
    said = {"role": "user", "content": 'call s.careful with {"text": "approved"}'}
    chat: Json = {"model": "rehearsal", "messages": [said]}
    status, first = await here.ask("POST", CHAT, chat)
    assert status == 200, first
    paused = first["bascule"]["paused"]
    [asked] = paused["approvals"]
    assert paused["resume"].endswith("w1")
    status, question = await there.ask("GET", f"/api/v1/approvals/{asked['approval_id']}")
    assert (status, question["state"]) == (200, "pending")
    await approve(there, up, asked["approval_id"])
    return {**chat, "mcp": {"resume": paused["resume"]}}


async def approve(line: Line, up: Up, id: str) -> None:
    """Approve a call on a connection that is there: a new one may meet a worker that is killed."""
    headers, url = {"Authorization": f"Bearer {up.admin}"}, f"{line.url}/admin/api/approvals/{id}"
    async with line.http.get(url, headers=headers) as answer:
        digest = (await answer.json())["digest"]
    decision = {"decision": "approve", "digest": digest}
    async with line.http.post(f"{url}/decision", headers=headers, json=decision) as answer:
        assert answer.status == 200, await answer.text()


async def approved_call(here: Line, there: Line, up: Up) -> None:
    """A call that somebody approves, made again through the other worker: it is not asked anew."""
    call = {"name": "s/careful", "arguments": {"text": "twice"}}
    asked = [(await line.ask("POST", "/api/v1/tools/call", call))[1] for line in (here, there)]
    [id] = {one["error"]["details"]["approval_id"] for one in asked}
    code, _, err = await run("approvals", "approve", id, "--yes", "--data-dir", str(up.data))
    assert code == 0, err
    _, outcome = await there.ask("POST", "/api/v1/tools/call", call)
    assert (outcome["ok"], worker_of(outcome)) == (True, 2), outcome
