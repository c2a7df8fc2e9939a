"""The laws of what is named as loosened: whatever allows more, and nothing that says the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from bascule.model.kinds import Record
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord
from bascule.policy.approval import call_facts, plan_approval
from bascule.policy.loosening import loosened
from tests.laws import record_strategies as records
from tests.laws.oracle import Case
from tests.laws.strategies import PATTERNS, PEOPLE, PROFILES, SERVERS, TOOLS, Dice, tools_of
from tests.scale import SOAK, scaled

Plain = dict[str, Any]
RANDOM_CASES = scaled(60_000)
#: Each verdict of approval, the laxest first.
LAXEST = ("allow", "require", "deny")


def server(plain: Plain | None) -> ServerRecord | None:
    base = {"server_id": "a", "transport": "stdio", "stdio": {"command": "x"}}
    return None if plain is None else convert(base | plain, ServerRecord)


def task(plain: Plain | None) -> TaskRecord | None:
    return None if plain is None else convert({"task_id": "t", "mcp": plain}, TaskRecord)


def profile(plain: Plain | None) -> ProfileRecord | None:
    return None if plain is None else convert({"name": "p"} | plain, ProfileRecord)


def user(plain: Plain | None) -> UserRecord | None:
    return None if plain is None else convert({"user_id": "u"} | plain, UserRecord)


def without(table: dict[str, Plain], key: str, plain: Plain | None) -> dict[str, Plain]:
    left = {name: value for name, value in table.items() if name != key}
    return left if plain is None else left | {key: plain}


def another(dice: Dice, old: Plain | None, new: Plain) -> Plain | None:
    """Return a record that came, went, is all different, or differs in one field."""
    if old is None:
        return new
    if dice.chance(0.1):
        return None
    if dice.chance(0.2) or not (old or new):
        return new
    field = dice.rng.choice(sorted({*old, *new}))
    changed = {name: value for name, value in old.items() if name != field}
    return changed | ({field: new[field]} if field in new else {})


def changed(dice: Dice, case: Case) -> tuple[Case, Record | None, Record | None]:
    """Return a case with one record changed, and that record before and after."""
    kind = dice.rng.choice(("server", "profile", "task", "platform", "user"))
    if kind == "user":
        key = case.person or dice.rng.choice(PEOPLE)
        old, new = case.users.get(key), another(dice, case.users.get(key), dice.user())
        return replace(case, users=without(case.users, key, new)), user(old), user(new)
    if kind == "server":
        key = dice.rng.choice(SERVERS)
        old, new = case.servers.get(key), another(dice, case.servers.get(key), dice.server())
        return replace(case, servers=without(case.servers, key, new)), server(old), server(new)
    if kind == "profile":
        key = dice.rng.choice(PROFILES)
        old, new = case.profiles.get(key), another(dice, case.profiles.get(key), dice.profile())
        return replace(case, profiles=without(case.profiles, key, new)), profile(old), profile(new)
    if kind == "task" and case.task is not None:
        new = another(dice, case.task, dice.task()) or dice.task()
        return replace(case, task=new), task(case.task), task(new)
    wanted = {"tool_denylist": dice.some(PATTERNS[1:], 3)}
    old, new = (convert(plain, PlatformRecord) for plain in (case.platform, wanted))
    return replace(case, platform=wanted), old, new


@pytest.mark.requirement("audit:policy-loosened")
@pytest.mark.timeout(3600 if SOAK else 60)
def test_a_change_after_which_some_session_has_another_tool_is_named():
    rng = random.Random(20261116 if not SOAK else None)
    wider = silent = 0
    for _ in range(RANDOM_CASES):
        dice = Dice(rng)
        case = dice.case()
        after, old, new = changed(dice, case)
        gained = tools_of(after) - tools_of(case)
        named = loosened(old, new)
        assert named or not gained, (case, old, new, gained)
        wider += bool(gained)
        silent += not named
    assert wider > RANDOM_CASES // 100
    assert silent > RANDOM_CASES // 10, "what is always named says nothing"


def shuffled(dice: random.Random, plain: Any, path: str = "") -> Any:
    """Return plain values in another order, where order has no meaning."""
    if isinstance(plain, dict):
        items = list(plain.items())
        dice.shuffle(items)
        return {name: shuffled(dice, value, name) for name, value in items}
    if isinstance(plain, list) and path not in ("rules", "args"):
        return dice.sample(plain, len(plain))
    return plain


KINDS: dict[str, tuple[Any, Any]] = {
    "server": (records.SERVERS, ServerRecord),
    "task": (records.TASKS, TaskRecord),
    "profile": (records.PROFILES, ProfileRecord),
    "platform": (records.PLATFORMS, PlatformRecord),
    "user": (records.USERS, UserRecord),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), order=st.randoms())
def test_the_same_in_another_order_is_not_named(
    kind: str, data: st.DataObject, order: random.Random
):
    plains, of = KINDS[kind]
    plain = data.draw(plains)
    plain.pop("config", None)
    for table in (plain, plain.get("stdio", {})):  # whose order a process would see
        table.pop("env_from", None)
    old, new = convert(plain, of), convert(shuffled(order, plain), of)
    assert loosened(old, new) == ()
    assert loosened(old, old) == ()
    assert kind in ("platform", "user") or loosened(old, None) == ()


MODES = st.sampled_from(["never", "policy", "always"])
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "tools": st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
            "effect": st.sampled_from(["require_approval", "deny", "allow"]),
        },
        optional={"when": st.sampled_from(["args.n > 1", "caller == 'eve'", "true"])},
    ),
    max_size=3,
)
POLICIES = st.fixed_dictionaries(
    {
        "default": MODES,
        "per_tool": st.dictionaries(st.sampled_from((*PATTERNS, *TOOLS)), MODES, max_size=3),
        "rules": RULES,
    }
)
FACTS: list[tuple[Plain, str | None]] = [
    ({"n": 1}, None),
    ({"n": 2}, "eve"),
    ({"n": "text"}, "eve"),
    ({}, "ada"),
]


def laxity(platform: PlatformRecord, record: ServerRecord) -> list[int]:
    """Return how strict approval is with every tool and call."""
    return [
        LAXEST.index(
            plan_approval(platform, record, tool)
            .verdict(call_facts(record, tool, arguments, caller, None))
            .action
        )
        for tool in TOOLS
        for arguments, caller in FACTS
    ]


@pytest.mark.requirement("audit:policy-loosened")
@given(data=st.data(), old=POLICIES, other=POLICIES, platform=st.booleans())
def test_a_change_after_which_a_call_needs_less_approval_is_named(
    data: st.DataObject, old: Plain, other: Plain, *, platform: bool
):
    field = data.draw(st.sampled_from(sorted(old)))
    how = data.draw(st.sampled_from(["replaced", "more", "fewer"]))
    new = {**old, field: other[field]}
    if field == "rules" and how != "replaced":
        new["rules"] = [*old["rules"], *other["rules"]] if how == "more" else old["rules"][:-1]
    if field == "per_tool" and how != "replaced":
        some = dict(list(old["per_tool"].items())[1:])
        new["per_tool"] = {**other["per_tool"], **old["per_tool"]} if how == "more" else some
    if platform:
        pair = [
            convert({"default_approval": one["default"], "rules": one["rules"]}, PlatformRecord)
            for one in (old, new)
        ]
        record = server({})
        assert record is not None
        before, after = (laxity(one, record) for one in pair)
        named = loosened(pair[0], pair[1])
    else:
        first, second = server({"approval_policy": old}), server({"approval_policy": new})
        assert first is not None
        assert second is not None
        before, after = (laxity(PlatformRecord(), one) for one in (first, second))
        named = loosened(first, second)
    if any(now < was for was, now in zip(before, after, strict=True)):
        assert named
