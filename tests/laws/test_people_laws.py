"""The laws of people: whoever is removed, renamed or narrowed has no tool that they had not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.laws.oracle import Case
from tests.laws.strategies import FILTERS, PEOPLE, cases, lively_cases, record_of, tools_of, users

Plain = dict[str, Any]
ANYBODY = st.sampled_from(PEOPLE)


def of_person(case: Case, person: str, record: Plain | None, *, acting: bool = False) -> Case:
    """Return the case as a session of somebody, with that record or with none."""
    others = {name: user for name, user in case.users.items() if name != person}
    known = others if record is None else others | {person: record}
    return replace(case, users=known, person=person, acting=acting)


def is_open(case: Case) -> bool:
    return (case.task or {}).get("users") == "open"


def for_everybody(case: Case) -> Case:
    """Return the case without a person, in a task that does not ask for one."""
    task = {name: value for name, value in (case.task or {}).items() if name != "allowed_groups"}
    return replace(case, person=None, task=None if case.task is None else task)


@pytest.mark.requirement("people:removal-law")
@given(case=cases() | lively_cases(), person=ANYBODY, acting=st.booleans())
def test_who_is_removed_has_nothing_left(case: Case, person: str, acting: bool):
    assume(not (acting and is_open(case)))
    assert tools_of(of_person(case, person, None, acting=acting)) == set()


@pytest.mark.requirement("people:removal-law")
@given(case=cases() | lively_cases(), person=ANYBODY, record=users(), acting=st.booleans())
def test_nobody_else_has_more_when_somebody_goes(
    case: Case, person: str, record: Plain, acting: bool
):
    before = replace(case, users=case.users | {person: record}, acting=acting)
    after = replace(before, users={k: v for k, v in before.users.items() if k != person})
    assume(case.person != person)
    assert tools_of(after) == tools_of(before)


@pytest.mark.requirement("people:removal-law")
@given(case=cases() | lively_cases(), record=users(), acting=st.booleans())
def test_who_is_renamed_has_nothing_under_the_old_name(case: Case, record: Plain, acting: bool):
    assume(not (acting and is_open(case)))
    renamed = replace(case, users={"alice2": record}, person="alice", acting=acting)
    assert tools_of(renamed) == set()


@pytest.mark.requirement("people:removal-law")
@given(case=cases() | lively_cases(), person=ANYBODY, record=users())
def test_who_is_off_has_nothing_in_any_task(case: Case, person: str, record: Plain):
    off = record | {"enabled": False}
    assert tools_of(of_person(case, person, off)) == set()
    assert tools_of(of_person(case, person, off, acting=True)) == set()


@pytest.mark.requirement("people:narrowing-law")
@given(
    case=cases() | lively_cases(), person=ANYBODY, record=st.none() | users(), acting=st.booleans()
)
def test_a_session_of_a_person_has_no_tool_that_one_of_nobody_has_not(
    case: Case, person: str, record: Plain | None, acting: bool
):
    its = tools_of(of_person(case, person, record, acting=acting))
    assert its <= tools_of(for_everybody(case))


@pytest.mark.requirement("people:narrowing-law", "people:own-choice")
@given(case=cases() | lively_cases(), person=ANYBODY, record=users(), own=record_of(**FILTERS))
def test_a_choice_of_ones_own_never_adds_a_tool_and_taken_back_takes_none(
    case: Case, person: str, record: Plain, own: Plain
):
    given_by_others = {name: value for name, value in record.items() if name != "own"}
    most = tools_of(of_person(case, person, given_by_others))
    assert tools_of(of_person(case, person, given_by_others | {"own": own})) <= most
    assert tools_of(of_person(case, person, given_by_others | {"own": {}})) == most


@pytest.mark.requirement("people:narrowing-law")
@given(
    case=cases() | lively_cases(),
    person=ANYBODY,
    record=users(),
    field=st.sampled_from(["enabled_server_ids", "tool_allowlist"]),
    keep=st.integers(0, 3),
)
def test_a_shorter_list_never_adds_a_tool_and_an_empty_one_leaves_none(
    case: Case, person: str, record: Plain, field: str, keep: int
):
    without = {name: value for name, value in record.items() if name != field}
    shorter = without | {field: record.get(field, [])[:keep]}
    had = tools_of(of_person(case, person, record))
    assert tools_of(of_person(case, person, shorter)) <= had
    assert had <= tools_of(of_person(case, person, without))
    assert tools_of(of_person(case, person, without | {field: []})) == set()
