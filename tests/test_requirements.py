"""The manifest and the tests agree, in both directions; each message says the fix."""

import re
from collections import Counter
from pathlib import Path

import pytest

from checks.requirements_flip import mark_shown
from checks.requirements_page import render
from tests.requirements import ALL, AREAS, module_of
from tests.requirements.model import Deferred, NotPlanned, Requirement, Shown, Work
from tests.requirements.scan import UnreadableMarker, Use, uses_in_source, uses_in_tests

ROOT = Path(__file__).resolve().parents[1]
ID = re.compile(r"[a-z][a-z0-9-]*(:[a-z0-9][a-z0-9-]*){1,2}")
SOURCE = re.compile(r"seed 00[0-4], .+|DESIGN\.md [1-5], .+")
AUTOMATIC_FIX = "python -m checks.requirements_flip"


def fixes_for_uses(entries: tuple[Requirement, ...], uses: list[Use]) -> list[str]:
    """What is wrong with the ids that tests carry."""
    by_id = {entry.id: entry for entry in entries}
    fixes: list[str] = []
    for use in uses:
        entry = by_id.get(use.id)
        if entry is None:
            fixes.append(f"{use.where}: no entry {use.id!r}; add it to tests/requirements/")
        elif not isinstance(entry.state, Shown):
            fixes.append(
                f"{use.where}: {use.id!r} is not Shown; mark it Shown in {module_of(use.id)}"
                f" (or run {AUTOMATIC_FIX})"
            )
    return fixes


def fixes_for_entries(entries: tuple[Requirement, ...], uses: list[Use]) -> list[str]:
    """What is wrong with the entries that claim to be shown."""
    carried = {use.id for use in uses}
    return [
        f"{entry.id!r} is Shown and no test carries it; add"
        f' @pytest.mark.requirement("{entry.id}") to the test that shows it,'
        f" or mark it Deferred in {module_of(entry.id)}"
        for entry in entries
        if isinstance(entry.state, Shown) and entry.id not in carried
    ]


def test_every_id_that_a_test_carries_is_an_entry_marked_shown():
    fixes = fixes_for_uses(ALL, uses_in_tests())
    assert not fixes, "\n".join(fixes)


def test_every_entry_marked_shown_is_carried_by_a_test():
    fixes = fixes_for_entries(ALL, uses_in_tests())
    assert not fixes, "\n".join(fixes)


def test_ids_are_unique():
    twice = [name for name, count in Counter(entry.id for entry in ALL).items() if count > 1]
    assert not twice, f"give each its own id: {twice}"


def test_ids_are_well_formed():
    wrong = [entry.id for entry in ALL if not ID.fullmatch(entry.id)]
    assert not wrong, f"write <area>:<feature>[:<variant>] in lower case: {wrong}"


def test_an_entry_lives_in_the_module_of_its_area():
    wrong = [entry.id for area in AREAS for entry in area.entries if entry.area != area.name]
    assert not wrong, f"move each to tests/requirements/<area>.py, or rename it: {wrong}"
    assert all((ROOT / module_of(entry.id)).is_file() for entry in ALL)


def test_every_data_module_is_part_of_the_manifest():
    files = {path.stem for path in (ROOT / "tests" / "requirements").glob("*.py")}
    listed = {area.name for area in AREAS}
    assert files - {"__init__", "model", "scan"} == listed, "list it in tests/requirements/__init__"


def test_every_entry_is_one_sentence_with_its_source():
    wrong = [
        entry.id
        for entry in ALL
        if not entry.text.endswith(".") or not SOURCE.fullmatch(entry.source)
    ]
    assert not wrong, f"text ends with a full stop, source names seed or DESIGN.md: {wrong}"


def test_every_state_says_where_to_or_why():
    for entry in ALL:
        match entry.state:
            case Deferred(to=work):
                assert work in Work, f"{entry.id}: defer to a member of Work"
            case NotPlanned(reason=reason):
                assert reason, f"{entry.id}: say why it is not planned"
            case Shown():
                pass


def test_the_manifest_is_the_contents_list_of_the_product():
    assert len(ALL) >= 150


def test_the_page_is_what_the_manifest_says():
    page = (ROOT / "docs" / "requirements.md").read_text("utf-8")
    assert page == render(), "docs/requirements.md is stale; run make generate"


ENTRY = Requirement(
    id="policy:x", text="It does.", source="seed 002, Goals", state=Deferred(Work.FOUNDATION)
)
SHOWN = Requirement(id="policy:x", text="It does.", source="seed 002, Goals", state=Shown())


def test_an_unknown_id_on_a_test_is_reported_with_its_place():
    (fix,) = fixes_for_uses((ENTRY,), [Use("policy:y", "tests/test_a.py:3")])
    assert "tests/test_a.py:3" in fix
    assert "add it" in fix


def test_an_id_on_a_test_whose_entry_is_deferred_is_reported_with_the_fix():
    (fix,) = fixes_for_uses((ENTRY,), [Use("policy:x", "tests/test_a.py:3")])
    assert "mark it Shown in tests/requirements/policy.py" in fix


def test_a_shown_entry_without_a_test_is_reported_with_the_fix():
    (fix,) = fixes_for_entries((SHOWN,), [])
    assert '@pytest.mark.requirement("policy:x")' in fix
    assert fixes_for_entries((SHOWN,), [Use("policy:x", "tests/test_a.py:3")]) == []


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


DATA = '''"""Area."""

from tests.requirements.model import Deferred, Requirement, Work

ENTRIES = (
    Requirement(
        id="policy:a",
        text="A.",
        source="seed 002, Goals",
        state=Deferred(Work.FOUNDATION),
    ),
    Requirement(id="policy:b", text="B.", source="seed 002, Goals", state=Deferred(Work.UP)),
)
'''


def test_flipping_changes_one_entry_and_the_import_it_needs():
    once = mark_shown(DATA, "policy:a")
    assert once.count("state=Shown()") == 1
    assert "state=Deferred(Work.UP)" in once
    assert "import Deferred, Requirement, Shown, Work" in once
    twice = mark_shown(once, "policy:b")
    assert "import Requirement, Shown\n" in twice


def test_flipping_an_entry_that_is_not_deferred_is_an_error():
    with pytest.raises(ValueError, match="policy:c"):
        mark_shown(DATA, "policy:c")
