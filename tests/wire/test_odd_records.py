"""Whatever is put anywhere into a record is read, or refused with its path; nothing else."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from bascule.errors import InvalidRecord
from bascule.wire.records import decode, dump, parse
from tests.wire.full_records import FULL, places, put

ODD: list[Any] = [
    *(None, True, 0, 1, -1, 1.0, 1.5, float("nan"), float("inf"), 10**30),
    *("", "\0", "x" * 300, "__", "/", "*/x", "${", "secret://", "é\n", b"bytes"),
    *([], [None], [[]], {}, {"": None}, {"keys": 1}),
]
pytestmark = pytest.mark.requirement("record:validate:path")
each_kind = pytest.mark.parametrize("kind", FULL)


def complaint(cls: Any, plain: dict[str, Any], tops: tuple[str, ...]) -> str | None:
    """Read a record; say what is wrong with how that went, if anything."""
    try:
        record, _ = decode(cls, plain)
    except InvalidRecord as error:
        lost = [problem for problem in error.problems if not problem.startswith(tops)]
        return f"says {lost}" if lost or not error.problems else None
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        return f"raises {error!r}"
    return unwritable(cls, record, "json") or unwritable(cls, record, "toml")


def unwritable(cls: Any, record: Any, form: Literal["json", "toml"]) -> str | None:
    try:
        again, _ = decode(cls, parse(dump(record, form).encode(), form))
    except (TypeError, ValueError, InvalidRecord) as error:
        return f"is accepted but cannot be written as {form}: {error!r}"
    return None if again == record else f"is accepted and changes when written as {form}"


def tops(path: tuple[Any, ...]) -> tuple[str, ...]:
    """Say where a broken value may be reported; a transport decides which tables are needed."""
    return ("transport", "stdio", "http") if path[-1] == "transport" else (str(path[0]),)


def complaints(kind: str, odd: Any) -> list[str]:
    cls, plain = FULL[kind]
    return [
        f"{path} = {odd!r} {said}"
        for path in places(plain)
        if (said := complaint(cls, put(plain, path, odd), tops(path))) is not None
    ]


@each_kind
def test_any_odd_value_anywhere_is_read_or_refused_with_its_path(kind: str):
    wrong = [line for odd in ODD for line in complaints(kind, odd)]
    assert not wrong, f"{len(wrong)} in all, such as:\n" + "\n".join(wrong[:20])


@each_kind
def test_text_that_no_format_can_write_is_refused(kind: str):
    wrong = complaints(kind, "a\ud800") + complaints(kind, ["a\ud800"])
    assert not wrong, f"{len(wrong)} in all, such as:\n" + "\n".join(wrong[:20])


@each_kind
def test_a_key_that_is_no_text_is_refused_or_left_out(kind: str):
    wrong = complaints(kind, {1: "a"})
    assert not wrong, f"{len(wrong)} in all, such as:\n" + "\n".join(wrong[:20])
