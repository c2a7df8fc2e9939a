"""Control, bidirectional and invisible characters made harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.policy.characters import CLEAN, escape, neutralise, render_exact, render_safe

ESC, RLO, ZWSP, TAG_A, VS17 = "\x1b", "\u202e", "\u200b", "\U000e0041", "\U000e0100"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text\n\twith lines\r\n",
        "Grüße, 漢字, \u00a0 and a narrow space",
        "👩\u200d👩\u200d👧 ❤\ufe0f ❤\ufe0f\u200d🔥 👍🏽 1\ufe0f\u20e3",
        "\u0645\u06cc\u200c\u062e\u0648\u0627 \u0d9a\u0dca\u200d\u0dc2",  # Persian, Sinhala
        "an icon of a private font: \ue0b0",
    ],
)
def test_ordinary_text_is_left_as_it_is(text: str):
    assert neutralise(text) == (text, CLEAN)


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        (f"a{ESC}[2Jb", r"a\x1b[2Jb", "control"),
        ("bell\a", r"bell\x07", "control"),
        ("c1 \x9b31m", r"c1 \x9b31m", "control"),
        ("del \x7f", r"del \x7f", "control"),
        (f"ab{RLO}cd", "abcd", "bidi"),
        ("a\u2066b", "ab", "bidi"),
        (f"pass{ZWSP}word", "password", "invisible"),
        ("\ufeffbom", "bom", "invisible"),
        ("soft\u00adhyphen", "softhyphen", "invisible"),
        ("filler\u3164", "filler", "invisible"),
        ("x\u200dy", "xy", "invisible"),
        (f"hi{TAG_A}", "hi", "tag"),
        (f"hi{VS17}", "hi", "variation"),
        ("a\ufe0f\ufe01", "a\ufe0f", "variation"),
        ("\ufe0f", "", "variation"),
        ("lone \ud800", r"lone \ud800", "surrogate"),
    ],
)
def test_what_deceives_is_escaped_or_removed_and_counted(text: str, expected: str, kind: str):
    assert neutralise(text) == (expected, {kind: 1})


def test_each_kind_is_counted_by_itself():
    counts = neutralise(f"{ESC}{ESC}{RLO}{TAG_A * 40}{ZWSP}").counts
    assert counts == {"control": 2, "bidi": 1, "tag": 40, "invisible": 1}


@pytest.mark.requirement("hygiene:directional-marks")
@pytest.mark.parametrize(
    "text",
    [
        "שלום C++\u200e עולם",
        "\u200fمرحب (1)\u200f",
        "سعر\u061c 12.5-",
        "Name: \u2068محمد\u2069 (admin)",
        "היא אמרה \u2066hello world\u2069 והלכה",
        "from \u202bבקר\u202c to",
        "\u2067עם \u2066C#\u2069 טוב\u2069",
        "\u2066a\u2069" + "x" * 47 + "ש",
        "ܫܠܡܐ\u200f ٠١٢",
    ],
)
def test_directional_marks_stay_with_the_script_that_needs_them(text: str):
    assert neutralise(text) == (text, CLEAN)


@pytest.mark.requirement("hygiene:directional-marks", "hygiene:invisible-characters")
@pytest.mark.parametrize(
    ("text", "left", "count"),
    [
        ("pay\u200eee", "payee", 1),
        ("\u2066a\u2069 and \u200fb", "a and b", 3),
        (f"שלום {RLO}txt.exe\u202c", "שלום txt.exe", 2),
        ("שלום \u2066open", "שלום open", 1),
        ("שלום \u2069 \u202c", "שלום  ", 2),
        ("שלום\npay\u200eee\n", "שלום\npayee\n", 1),
        ("שלום " + "x" * 80 + "\u200e", "שלום " + "x" * 80, 1),
        ("\u2066a\u2069" + "x" * 48 + "ש", "a" + "x" * 48 + "ש", 2),
    ],
)
def test_a_directional_mark_without_such_letters_and_every_override_is_removed(
    text: str, left: str, count: int
):
    assert neutralise(text) == (left, {"bidi": count})


def test_an_approver_sees_what_was_hidden():
    assert render_safe(f"rm{RLO} x{TAG_A}{ESC}[0m") == r"rm\u202e x\U000e0041\x1b[0m"
    assert render_safe("over\rwritten \u2028 \ue000") == r"over\rwritten \u2028 \ue000"
    assert render_safe("👩\u200d👧 ❤\ufe0f") == "👩\u200d👧 ❤\ufe0f"


def test_one_entry_cannot_pose_as_two_on_one_line():
    assert render_safe("a\nb\tc") == "a\nb\tc"
    assert render_safe("a\nb\tc", one_line=True) == r"a\nb\tc"


def test_escapes_have_the_shortest_form_that_python_reads_back():
    for character in ("\x1b", "\u202e", "\U000e0041", "\n", "\r", "\t"):
        assert escape(character).encode().decode("unicode_escape") == character


SPECIAL = (
    "ab1 \n\r\x00\x1b\x9b\u00ad\u200b\u200c\u200d\u200e\u202e\ufe00\ufe0f\ufeff\u17b4"
    f"👩❤ی漢ש\u2067\u2069\u200f\u1780\u3164\ud800{TAG_A}{VS17}"
)


@given(st.text(alphabet=SPECIAL, max_size=30) | st.text(max_size=30))
def test_neutralising_twice_changes_nothing_more(text: str):
    once = neutralise(text).text
    assert neutralise(once) == (once, CLEAN)


@given(st.text(alphabet=SPECIAL, max_size=30) | st.text(max_size=30))
def test_what_is_left_can_be_encoded_and_holds_no_terminal_control(text: str):
    safe = render_safe(neutralise(text).text, one_line=True)
    safe.encode()
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in safe)
    assert not set(safe) & set(RLO + ZWSP + TAG_A + VS17)


def test_what_is_approved_shows_every_character_that_cannot_be_seen():
    assert render_exact("plain é 漢\n\tx") == "plain é 漢\n\tx"
    assert render_exact("a\ufe0fb") == r"a\ufe0fb"
    assert render_exact("👩\u200d👧 ❤\ufe0f") == "👩\\u200d👧 ❤\\ufe0f"
    assert render_exact("rm\u00a0-rf\u2003/\u3000\u2800") == r"rm\xa0-rf\u2003/\u3000\u2800"
    assert render_exact(f"x{RLO}{ESC}") == r"x\u202e\x1b"
