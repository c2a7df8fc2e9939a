"""The manifest and the tests agree, in both directions; each message says the fix."""

import re
from collections import Counter
from pathlib import Path

import pytest

from checks.requirements_flip import mark_shown
from checks.requirements_page import render
from tests.requirements import (
    ALL,
    AREAS,
    DEFERRED,
    NOT_PLANNED,
    SHOWN,
    WORKS,
    Requirement,
    read_manifest,
)
from tests.requirements.scan import UnreadableMarker, Use, uses_in_source, uses_in_tests

ROOT = Path(__file__).resolve().parents[1]
ID = re.compile(r"[a-z][a-z0-9-]*(:[a-z0-9][a-z0-9-]*){1,2}")
SOURCE = re.compile(r"seed 00[0-4], .+|DESIGN\.md [1-5], .+")
AUTOMATIC_FIX = "python -m checks.requirements_flip"
PLACE = "tests/requirements/manifest.md"


def fixes_for_uses(entries: tuple[Requirement, ...], uses: list[Use]) -> list[str]:
    """What is wrong with the ids that tests carry."""
    by_id = {entry.id: entry for entry in entries}
    fixes: list[str] = []
    for use in uses:
        entry = by_id.get(use.id)
        if entry is None:
            fixes.append(f"{use.where}: no row {use.id!r}; add it to {PLACE}")
        elif not entry.shown:
            fixes.append(
                f"{use.where}: {use.id!r} is not shown; mark it shown in {PLACE}"
                f" (or run {AUTOMATIC_FIX})"
            )
    return fixes


def fixes_for_entries(entries: tuple[Requirement, ...], uses: list[Use]) -> list[str]:
    """What is wrong with the entries that claim to be shown."""
    carried = {use.id for use in uses}
    return [
        f"{entry.id!r} is shown and no test carries it; add"
        f' @pytest.mark.requirement("{entry.id}") to the test that shows it,'
        f" or mark it deferred in {PLACE}"
        for entry in entries
        if entry.shown and entry.id not in carried
    ]


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    return uses_in_tests()


def test_every_id_that_a_test_carries_is_an_entry_marked_shown(uses: list[Use]):
    fixes = fixes_for_uses(ALL, uses)
    assert not fixes, "\n".join(fixes)


def test_every_entry_marked_shown_is_carried_by_a_test(uses: list[Use]):
    fixes = fixes_for_entries(ALL, uses)
    assert not fixes, "\n".join(fixes)


def test_ids_are_unique():
    twice = [name for name, count in Counter(entry.id for entry in ALL).items() if count > 1]
    assert not twice, f"give each its own id: {twice}"


def test_ids_are_well_formed():
    wrong = [entry.id for entry in ALL if not ID.fullmatch(entry.id)]
    assert not wrong, f"write <area>:<feature>[:<variant>] in lower case: {wrong}"


def test_an_entry_stands_under_the_heading_of_its_area():
    wrong = [entry.id for area in AREAS for entry in area.entries if entry.area != area.name]
    assert not wrong, f"move each below its own heading, or rename it: {wrong}"


def test_every_entry_is_one_sentence_with_its_source():
    wrong = [
        entry.id
        for entry in ALL
        if not entry.text.endswith(".") or not SOURCE.fullmatch(entry.source)
    ]
    assert not wrong, f"text ends with a full stop, source names seed or DESIGN.md: {wrong}"


def test_a_source_can_be_looked_up():
    pages = {f"seed 00{number}": page(f"seed-00{number}") for number in range(5)}
    unknown = {
        entry.source
        for entry in ALL
        for origin, _, section in [entry.source.partition(", ")]
        if f"- **{section}.**" not in pages.get(origin, page("design"))
    }
    assert not unknown, f"no such section in docs/sources/: {unknown}"


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / "sources" / f"{name}.md").read_text("utf-8").split())


def test_every_state_says_where_to_or_why():
    for entry in ALL:
        deferred = entry.state.removeprefix(DEFERRED)
        why = entry.state.removeprefix(NOT_PLANNED)
        known = entry.shown or deferred in WORKS or (why and why != entry.state)
        assert known, f"{entry.id}: say shown, {DEFERRED}one of {WORKS}, or {NOT_PLANNED}why"


def test_the_manifest_is_the_contents_list_of_the_product():
    assert len(ALL) >= 150


def test_the_page_is_what_the_manifest_says():
    page = (ROOT / "docs" / "requirements.md").read_text("utf-8")
    assert page == render(), "docs/requirements.md is stale; run make generate"


ENTRY = Requirement("policy:x", "It does.", "seed 002, Goals", f"{DEFERRED}{WORKS[0]}")
TO_BE_SHOWN = Requirement("policy:x", "It does.", "seed 002, Goals", SHOWN)


def test_an_unknown_id_on_a_test_is_reported_with_its_place():
    (fix,) = fixes_for_uses((ENTRY,), [Use("policy:y", "tests/test_a.py:3")])
    assert "tests/test_a.py:3" in fix
    assert "add it" in fix


def test_an_id_on_a_test_whose_entry_is_deferred_is_reported_with_the_fix():
    (fix,) = fixes_for_uses((ENTRY,), [Use("policy:x", "tests/test_a.py:3")])
    assert f"mark it shown in {PLACE}" in fix


def test_a_shown_entry_without_a_test_is_reported_with_the_fix():
    (fix,) = fixes_for_entries((TO_BE_SHOWN,), [])
    assert '@pytest.mark.requirement("policy:x")' in fix
    assert fixes_for_entries((TO_BE_SHOWN,), [Use("policy:x", "tests/test_a.py:3")]) == []


@pytest.mark.parametrize(
    "source",
    [
        'import pytest\n@pytest.mark.requirement("a:b", "a:c")\ndef test_x(): ...\n',
        'import pytest\npytestmark = pytest.mark.requirement("a:b", "a:c")\n',
        'import pytest\npytestmark = [pytest.mark.requirement("a:b", "a:c"), pytest.mark.soak]\n',
        'from pytest import mark, param\nX = param(1, marks=mark.requirement("a:b", "a:c"))\n',
    ],
)
def test_ids_are_read_wherever_a_marker_may_stand(source: str):
    assert [use.id for use in uses_in_source(source, "t.py")] == ["a:b", "a:c"]


@pytest.mark.parametrize(
    "marker",
    [
        "pytest.mark.requirement(ID)",
        'pytest.mark.requirement(f"a:{ID}")',
        'pytest.mark.requirement(*["a:b"])',
        'pytest.mark.requirement(ids="a:b")',
        "pytest.mark.requirement()",
        "pytest.mark.requirement",
    ],
)
def test_a_marker_that_cannot_be_read_from_the_source_is_refused(marker: str):
    with pytest.raises(UnreadableMarker, match=r"t\.py:1"):
        uses_in_source(f"shown = {marker}\n", "t.py")


DATA = """\
## policy: Composition.

| id | behaviour | source | state |
| --- | --- | --- | --- |
| policy:a | A \\| B. | seed 002, Goals | deferred: hostcalls |
| policy:b | B. | seed 002, Goals | shown |
"""


def test_the_table_is_read_row_by_row():
    (area,) = read_manifest(DATA)
    assert (area.name, area.title) == ("policy", "Composition.")
    assert [(one.id, one.text, one.shown) for one in area.entries] == [
        ("policy:a", "A | B.", False),
        ("policy:b", "B.", True),
    ]


@pytest.mark.parametrize(
    "line", ["| a:b | no state |", "## nameless", "| row | before | any | heading |"]
)
def test_a_line_that_is_no_row_is_refused_with_its_number(line: str):
    text = f"{line}\n{DATA}" if "before" in line else f"{DATA}{line}\n"
    with pytest.raises(ValueError, match=r"line \d+"):
        read_manifest(text)


def test_flipping_changes_the_state_of_one_row():
    once = mark_shown(DATA, "policy:a")
    assert once.splitlines()[4] == "| policy:a | A \\| B. | seed 002, Goals | shown |"
    assert once.count("| shown |") == 2


@pytest.mark.parametrize("entry_id", ["policy:b", "policy:c"])
def test_flipping_a_row_that_is_not_deferred_is_an_error(entry_id: str):
    with pytest.raises(ValueError, match=entry_id):
        mark_shown(DATA, entry_id)
