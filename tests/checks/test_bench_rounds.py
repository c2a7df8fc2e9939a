"""What is made of rounds that took turns, and what the benchmarks rest on."""

from __future__ import annotations

import cProfile
import os
import socket
from functools import partial
from pathlib import Path

import pytest

from bascule.auth.token_store import open_tokens
from bench.caller import Bare, Caller, connected
from bench.http_clients import running, serving
from bench.machine import Load, on_cores, resident
from bench.profiles import entries, report
from bench.rounds import Ratio, Rounds, Setting, ratios
from bench.serving import TEXT
from bench.site import token_store
from bench.table import at_most

ROUNDS = Rounds(
    turns={
        "ours": [{"p50": 20.0}, {"p50": 90.0}, {"p50": 12.0}],
        "bare": [{"p50": 10.0}, {"p50": 30.0}, {"p50": 8.0}],
    },
    crowd={"ours": [{"each": 1.0}] * 3, "bare": [{"each": 4.0}] * 3},
)


def test_clients_are_compared_round_by_round():
    assert ROUNDS.ratio("turns", "p50", "ours", "bare") == 2.0
    assert ROUNDS.difference("p50", "ours", "bare") == 10.0
    assert ROUNDS.quietest("ours", "bare") == 4.0


def test_a_ratio_is_judged_where_its_setting_has_a_goal():
    over = Ratio("p50, ours / bare", "p50", "ours", "bare")
    crowd = Ratio("at 64, ours / bare", "each", "bare", "ours", kind="crowd")
    setting = Setting(
        title="t",
        module="m",
        clients=("ours", "bare"),
        ratios=(over, crowd),
        goals={over.name: partial(at_most, goal=1.8)},
    )
    judged, shown = ratios(setting, ROUNDS)
    assert (judged.name, judged.value, judged.met) == ("t: p50, ours / bare", 2.0, False)
    assert (shown.value, shown.goal) == (4.0, None)


def test_the_token_store_is_found_where_an_earlier_commit_had_it():
    assert token_store(["bascule.nowhere.token_store", "bascule.auth.token_store"]) is open_tokens


def test_a_token_store_that_cannot_be_imported_is_not_passed_over(tmp_path: Path, monkeypatch):
    (tmp_path / "broken_store.py").write_text("import no_such_library\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        token_store(["broken_store", "bascule.auth.token_store"])


def test_the_facts_of_the_machine_name_neither_it_nor_a_path():
    facts = Load().facts()
    assert set(facts) == {"python", "system", "cores", "load", "others", "bytecode"}
    assert socket.gethostname() not in str(facts.values())


def test_a_block_on_one_core_gives_the_others_back():
    before = os.sched_getaffinity(0)
    with on_cores({max(before)}):
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before
    assert resident() > 0


@pytest.mark.parametrize("kind", ["own protocol", "uvicorn", "starlette"])
async def test_a_fixed_server_answers_every_request(kind: str):
    with running("-m", "bench.fixed_servers", kind) as (url, _):
        async with Caller(url) as caller:
            for _ in range(2):
                assert (await caller.post("/anything", {"a": 1}))["text"] == TEXT


async def test_the_bare_client_takes_answers_one_after_the_other():
    with serving("floor") as url:
        async with connected([Bare(url, {})]) as (bare,):
            for number in (b"1", b"2"):
                body = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % number
                assert b'"id":' + number in await bare.post(body)


def test_a_profile_counts_each_function_of_a_call_exactly(tmp_path: Path):
    def step() -> int:
        return len("abc")

    with cProfile.Profile() as profile:
        for _ in range(10):
            step()
            step()
    profile.dump_stats(tmp_path / "stats")
    seen = entries(tmp_path / "stats", 10)
    assert [entry.calls for entry in seen if entry.name.endswith(" step")] == [2.0]
    page = report("stdio", seen, Load())
    assert "| 2.00 |" in page
    assert str(Path(__file__).parents[2]) not in page
