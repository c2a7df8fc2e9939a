"""Patterns over tool names: what they cover, and that they stay linear."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.pattern import Pattern, PatternSet, pattern_problem
from tests.laws.oracle import glob_matches
from tests.scale import scaled


def covers(pattern: str, tool: str, server: str = "fs") -> bool:
    return Pattern.parse(pattern).matches(server, tool)


@pytest.mark.requirement("policy:pattern:star")
def test_a_star_stands_for_any_run_of_characters_and_for_none():
    assert covers("read_*", "read_file")
    assert covers("read_*", "read_")
    assert covers("*", "anything.at/all")
    assert covers("a**b", "ab")
    assert not covers("read_*", "write_file")


@pytest.mark.requirement("policy:pattern:question-mark")
def test_a_question_mark_stands_for_exactly_one_character():
    assert covers("get_?", "get_x")
    assert covers("get_?", "get_é")
    assert not covers("get_?", "get_")
    assert not covers("get_?", "get_xy")


@pytest.mark.requirement("policy:pattern:whole-name")
@pytest.mark.parametrize("tool", ["pre_read_file", "read_files", "Read_file", "READ_FILE", ""])
def test_a_pattern_covers_the_whole_name_and_its_exact_case(tool: str):
    assert covers("read_file", "read_file")
    assert not covers("read_file", tool)
    assert not covers("read_fil?", tool)


@pytest.mark.parametrize("text", ["a.b", "[ab]", "a+", "(x)", "^a$", "a|b", "\\d", "{1}"])
def test_nothing_but_star_and_question_mark_is_special(text: str):
    assert covers(text, text)
    assert covers(text + "*", text + "!")
    assert not covers(text, "a")
    assert not covers(text, "1")


def test_a_line_break_in_a_tool_name_hides_nothing():
    assert covers("delete*", "delete\nall")
    assert covers("delete?all", "delete\nall")
    assert not covers("delete", "delete\n")
    assert not covers("delet?", "delete\n")


@pytest.mark.requirement("policy:pattern:server-qualified")
def test_a_pattern_with_a_server_holds_for_that_server_alone():
    assert covers("gitlab/delete_*", "delete_branch", server="gitlab")
    assert not covers("gitlab/delete_*", "delete_branch", server="gitlab2")
    assert not covers("gitlab/delete_*", "delete_branch", server="fs")
    assert covers("delete_*", "delete_branch", server="whoever")


@pytest.mark.parametrize("text", ["", "/", "fs/", "/read", "*/read", "f?/read", "x" * 257])
def test_a_pattern_that_cannot_mean_anything_is_refused(text: str):
    assert pattern_problem(text)
    with pytest.raises(ValueError, match=r"must|wildcards"):
        Pattern.parse(text)


def test_the_longest_pattern_is_accepted():
    assert pattern_problem("x" * 256) is None


@pytest.mark.requirement("policy:pattern:linear")
def test_forty_stars_on_ten_thousand_characters_come_to_an_answer():
    text = "a" * 10_000
    assert not covers("*a" * 40 + "*b", text)
    assert not covers("*a?" * 40 + "*b", text)
    assert covers("*a" * 40 + "*", text)


ALPHABET = "ab*?./"


@given(st.text(ALPHABET, min_size=1, max_size=7), st.text("ab./\n", max_size=8))
def test_a_pattern_agrees_with_a_naive_matcher(glob: str, text: str):
    assert Pattern("fs/" + glob).matches("fs", text) == glob_matches(glob, text)


def test_a_pattern_agrees_with_a_naive_matcher_on_many_random_pairs():
    rng = random.Random(20261101)
    for _ in range(scaled(30_000)):
        glob = "".join(rng.choices("aab**?", k=rng.randint(1, 8)))
        text = "".join(rng.choices("ab", k=rng.randint(0, 9)))
        assert Pattern(glob).matches("fs", text) == glob_matches(glob, text), (glob, text)


def test_a_set_covers_what_any_of_its_patterns_covers():
    patterns = PatternSet(["read_*", "write_file", "gitlab/delete_*"])
    assert patterns.first("fs", "read_file") == "read_*"
    assert patterns.first("fs", "write_file") == "write_file"
    assert patterns.first("gitlab", "delete_all") == "gitlab/delete_*"
    assert patterns.first("fs", "delete_all") is None


def test_a_set_names_the_most_telling_pattern():
    patterns = PatternSet(["*", "delete_*", "delete_all"])
    assert patterns.first("fs", "delete_all") == "delete_all"
    assert patterns.first("fs", "delete_one") == "delete_*"
    assert patterns.first("fs", "read") == "*"


def test_an_empty_set_covers_nothing():
    assert not PatternSet([])
    assert PatternSet([]).first("fs", "read") is None


@given(st.lists(st.sampled_from(["*", "a*", "?b", "ab", "fs/a*", "gl/*", "b"]), max_size=5))
def test_a_set_is_no_more_and_no_less_than_its_patterns(texts: list[str]):
    patterns = PatternSet(texts)
    for server in ("fs", "gl"):
        for tool in ("a", "b", "ab", "bb", "abc", ""):
            found = patterns.first(server, tool)
            covering = [text for text in texts if Pattern(text).matches(server, tool)]
            assert (found in covering) if covering else found is None
