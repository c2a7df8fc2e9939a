"""The scripted server at its best: eras, lists and what its tools do."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from bascule.testing import MALFORMED_TOOLS, ScriptedServer, do, tool

META = "io.modelcontextprotocol/"
MODERN_META = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}
TOKEN = {"progressToken": "t"}


def text(reply) -> str:
    return reply["result"]["content"][0]["text"]


def ignored_by(pid: int) -> set[int]:
    """The signals a living process ignores, as the kernel tells them."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    mask = int(status.split("SigIgn:")[1].split()[0], 16)
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}


def test_a_legacy_server_shakes_hands_in_the_version_of_its_script(start):
    peer = start(raw=True, era="legacy", version="2024-11-05", instructions="be kind")
    assert peer.modern("server/discover")["error"]["code"] == -32601
    assert peer.ask("tools/list")["error"]["code"] == -32600
    result = peer.ask("initialize", protocolVersion="2025-11-25")["result"]
    assert (result["protocolVersion"], result["instructions"]) == ("2024-11-05", "be kind")
    assert result["serverInfo"]["name"] == "scripted"
    assert peer.ask("ping")["result"] == {}


def test_a_legacy_server_never_shows_the_dress_of_the_modern_era(start):
    peer = start(era="legacy")
    assert peer.modern("tools/list")["result"].keys() == {"tools"}
    assert peer.end() == 0


def test_a_modern_server_answers_the_probe_and_dresses_every_result(start):
    peer = start(raw=True, era="modern", ttl_ms=5000, cache_scope="public")
    result = peer.modern("server/discover")["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == (
        "complete",
        5000,
        "public",
    )
    assert result["_meta"][META + "serverInfo"]["name"] == "scripted"
    assert peer.modern("tools/list")["result"]["ttlMs"] == 5000
    called = peer.modern("tools/call", name="echo", arguments={"text": "hi"})
    assert (called["result"]["resultType"], text(called)) == ("complete", "hi")
    assert peer.modern("ping")["error"]["code"] == -32601


def test_a_modern_server_refuses_what_lacks_its_envelope(start):
    peer = start(raw=True, era="modern")
    assert peer.ask("tools/list")["error"]["code"] == -32602
    assert peer.ask("initialize", protocolVersion="2025-11-25")["error"]["code"] == -32022
    assert peer.ask("tools/list", _meta={META + "protocolVersion": "2026-07-28"})["error"]
    old = {**MODERN_META, META + "protocolVersion": "2025-11-25"}
    error = peer.ask("tools/list", _meta=old)["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


def test_a_dual_server_decides_request_by_request(start):
    peer = start()
    assert "resultType" in peer.modern("tools/list")["result"]
    assert "resultType" not in peer.ask("tools/list")["result"]


def test_hints_and_result_type_can_be_left_out(start):
    peer = start(ttl_ms=None, cache_scope=None, omit_result_type=True)
    assert peer.modern("tools/list")["result"].keys() == {"tools", "_meta"}


def test_tools_come_in_pages_exactly_as_written(start):
    wanted = [tool("a"), *MALFORMED_TOOLS.values()]
    peer = start(tools=wanted, page_size=4, list_extra={"vendor": 1})
    seen, cursor = [], {}
    while cursor is not None:
        result = peer.ask("tools/list", **cursor)["result"]
        assert result["vendor"] == 1
        seen += result["tools"]
        cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else None
    assert seen == wanted


@pytest.mark.parametrize(("pagination", "distinct"), [("endless", 9), ("cycle", 3)])
def test_a_list_can_go_on_for_ever_or_in_a_circle(start, pagination, distinct):
    peer = start(pagination=pagination)
    cursors = ["0"]
    for _ in range(9):
        cursors.append(peer.ask("tools/list", cursor=cursors[-1])["result"]["nextCursor"])
    assert len(set(cursors[1:])) == distinct


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("echo", {"content": [{"type": "text", "text": "hi"}]}),
        (do("fixed", result={"content": [], "x": 1}), {"content": [], "x": 1}),
        (do("fixed", result="bare", bare=True), "bare"),
        (do("big", bytes=5, fill="é"), {"content": [{"type": "text", "text": "ééééé"}]}),
        (
            do("structured", value=[1]),
            {"content": [{"type": "text", "text": "[1]"}], "structuredContent": [1]},
        ),
        (do("error", text="no"), {"content": [{"type": "text", "text": "no"}], "isError": True}),
    ],
)
def test_a_tool_answers_as_its_script_says(start, step, expected):
    assert start(behaviours={"t": step}).call("t", text="hi")["result"] == expected


def test_errors_of_the_protocol_carry_code_message_and_data(start):
    peer = start(behaviours={"t": do("rpc_error", code=-5, message="odd", data=[1])})
    assert peer.call("t")["error"] == {"code": -5, "message": "odd", "data": [1]}
    assert peer.call("unheard of")["error"]["code"] == -32602
    assert peer.ask("no/such")["error"]["code"] == -32601


def test_executions_are_counted_in_a_ledger_outside(start, tmp_path):
    peer = start(
        behaviours={"t": "ledger", "last": do("ledger", then=do("die", code=3))},
        ledger=tmp_path / "ledger",
    )
    assert text(peer.call("t", text="one")) == "one"
    peer.post("tools/call", name="last", arguments={"n": 2})
    assert peer.line() == b""
    assert peer.process.wait(10) == 3
    lines = (tmp_path / "ledger").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"text": "one"}, {"n": 2}]


def test_a_gate_holds_one_call_and_lets_others_pass(start, tmp_path):
    peer = start(behaviours={"slow": do("gate", path=str(tmp_path / "open")), "echo": "echo"})
    held = peer.post("tools/call", name="slow", arguments={"text": "late"})
    assert text(peer.call("echo", text="now")) == "now"
    (tmp_path / "open").touch()
    reply = peer.frame()
    assert (reply["id"], text(reply)) == (held, "late")


def test_a_gate_can_wait_for_a_notification(start):
    peer = start(behaviours={"slow": do("gate", method="notifications/go")})
    held = peer.post("tools/call", name="slow", arguments={})
    peer.send(method="notifications/go")
    assert peer.frame()["id"] == held


def test_a_slow_start_waits_at_its_gate(start, tmp_path):
    peer = start(raw=True, at_start=[do("gate", path=str(tmp_path / "open"))])
    peer.post("initialize")
    (tmp_path / "open").touch()
    assert peer.frame()["id"] == 1


def test_a_cancelled_call_stays_unanswered_or_is_answered_late(start, tmp_path):
    noted = str(tmp_path / "noted")
    peer = start(
        behaviours={
            "mute": do("sleep_until_cancelled", path=noted),
            "late": do("sleep_until_cancelled", then="echo"),
        },
        journal=tmp_path / "journal",
    )
    mute = peer.post("tools/call", name="mute", arguments={})
    late = peer.post("tools/call", name="late", arguments={})
    for key in (mute, late):
        peer.send(method="notifications/cancelled", params={"requestId": key})
    assert peer.frame()["id"] == late
    assert (tmp_path / "noted").read_text(encoding="utf-8") == "cancelled\n"
    assert (tmp_path / "journal").read_text(encoding="utf-8").count("notifications/cancelled") == 2


def test_progress_comes_before_the_answer_or_for_ever(start):
    peer = start(behaviours={"some": do("progress", count=2), "ever": "progress"})
    first = peer.ask("tools/call", name="some", arguments={}, _meta=TOKEN)
    assert first["params"] == {"progressToken": "t", "progress": 1, "total": 2}
    assert peer.frame()["params"]["progress"] == 2
    assert "result" in peer.frame()
    peer.post("tools/call", name="ever", arguments={}, _meta=TOKEN)
    assert [peer.frame()["params"]["progress"] for _ in range(3)] == [1, 2, 3]
    assert peer.end() == 0


def test_a_changed_list_is_announced_to_each_era_in_its_own_way(start):
    change = do("change_tools", tools=[tool("new")], times=2)
    peer = start(behaviours={"change": change})
    assert peer.call("change")["method"] == "notifications/tools/list_changed"
    assert peer.frame()["method"] == "notifications/tools/list_changed"
    assert "result" in peer.frame()
    assert peer.ask("tools/list")["result"]["tools"] == [tool("new")]


def test_a_subscription_is_acknowledged_tagged_and_ended(start):
    peer = start(
        raw=True, era="modern", behaviours={"change": "change_tools", "end": "end_subscriptions"}
    )
    acknowledged = peer.modern("subscriptions/listen", notifications={"toolsListChanged": True})
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
    assert acknowledged["params"]["_meta"] == {META + "subscriptionId": 1}
    changed = peer.modern("tools/call", name="change", arguments={})
    assert changed["params"]["_meta"] == {META + "subscriptionId": 1}
    peer.frame()
    ended = peer.modern("tools/call", name="end", arguments={})
    assert (ended["id"], ended["result"]["resultType"]) == (1, "complete")


def test_input_is_asked_for_in_rounds(start):
    peer = start(raw=True, era="modern", behaviours={"t": do("input_required", rounds=2)})
    asked = peer.modern("tools/call", name="t", arguments={})["result"]
    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["who"])
    state = {"requestState": asked["requestState"], "inputResponses": {"who": 1}}
    again = peer.modern("tools/call", name="t", arguments={}, **state)["result"]
    state["requestState"] = again["requestState"]
    assert text(peer.modern("tools/call", name="t", arguments={}, **state)) == '{"who": 1}'


def test_a_question_to_the_client_comes_back_in_the_answer(start):
    peer = start(behaviours={"t": "server_request"})
    question = peer.call("t")
    assert question["method"] == "sampling/createMessage"
    peer.send(id=question["id"], error={"code": -32601, "message": "no"})
    assert json.loads(text(peer.frame()))["error"]["code"] == -32601


def test_the_environment_it_was_given_can_be_seen(start):
    value = start(behaviours={"env": "env"}).call("env")["result"]["structuredContent"]
    assert value["ppid"] == os.getpid()
    assert value["env"]["PATH"] == os.environ["PATH"]
    assert value["cwd"] == str(Path.cwd())
    assert {entry.split()[0] for entry in value["fds"]} >= {"0", "1", "2"}


@pytest.mark.parametrize("hold_pipes", [False, True])
def test_a_grandchild_is_detached_and_deaf_to_sigterm(start, tmp_path, hold_pipes):
    step = do("spawn_grandchild", path=str(tmp_path / "pid"), hold_pipes=hold_pipes)
    peer = start(behaviours={"t": step})
    pid = int(text(peer.call("t")))
    try:
        assert (tmp_path / "pid").read_text(encoding="utf-8") == f"{pid}\n"
        assert os.getsid(pid) not in {os.getsid(0), peer.process.pid}
        assert peer.end() == 0
        assert signal.SIGTERM in ignored_by(pid)
        assert holds_output(pid) is hold_pipes
    finally:
        os.kill(pid, signal.SIGKILL)


def holds_output(pid: int) -> bool:
    return Path(f"/proc/{pid}/fd/1").is_symlink()


def test_each_call_can_choose_its_fate_and_fates_can_take_turns(start, tmp_path):
    once = do("once", path=str(tmp_path / "mark"), first="error", then="echo")
    peer = start(
        behaviours={"asked": "asked", "turns": do("turns", steps=["error", "echo"]), "once": once},
        starts=tmp_path / "starts",
    )
    assert peer.call("asked", do=do("rpc_error", code=-7))["error"]["code"] == -7
    for name in ("turns", "once"):
        replies = [peer.call(name)["result"] for _ in range(3)]
        assert ["isError" in reply for reply in replies] == [True, False, False]
    assert (tmp_path / "starts").read_text(encoding="utf-8") == f"{peer.process.pid}\n"


def test_a_script_with_an_unknown_behaviour_is_refused_here():
    for bad in ({"behaviours": {"t": "ehco"}}, {"at_start": ["ehco"]}, {"on": {"x": "ehco"}}):
        with pytest.raises(ValueError, match="ehco"):
            ScriptedServer(**bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="ehco"):
        do("ledger", then=do("once", path="p", first={"kind": "ehco"}))


def test_a_script_holds_no_dollar_and_a_large_one_goes_to_a_file(spawn, tmp_path):
    large = ScriptedServer(tools=[tool("t", description="$" * 200_000)])
    assert "$" not in large.script
    with pytest.raises(ValueError, match="saved_to"):
        _ = large.command
    stdio = large.saved_to(tmp_path / "script.json").stdio
    peer = spawn(stdio["command"], *stdio["args"])
    peer.ask("initialize")
    assert peer.ask("tools/list")["result"]["tools"] == large.listed
