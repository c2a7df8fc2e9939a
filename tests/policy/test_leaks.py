"""Leak scanning. Every secret here is made up at run time from its parts."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.policy.known_values import spellings
from bascule.policy.leak_keys import entropy, placeholder
from bascule.policy.leak_rules import RULES
from bascule.policy.leaks import (
    KNOWN,
    LeakFinding,
    Scanner,
    marker,
    mask,
    mask_json,
    scan,
    scan_json,
)
from bench.leaks import FORMATS, secrets_in_context

ALNUM = string.ascii_letters + string.digits
CORPUS = list(secrets_in_context(random.Random(20261101)))
VALUE = "p7/Kd+" + 'vQ 9\u00e9w"x3'


def github_token(seed: int = 1) -> str:
    return "gh" + "p_" + "".join(random.Random(seed).choices(ALNUM, k=36))


@pytest.mark.parametrize("name", FORMATS)
def test_a_credential_of_a_known_format_is_found_and_no_longer_there_when_masked(name: str):
    for _, secret, text in (entry for entry in CORPUS if entry[0] == name):
        masked, count = mask(text)
        assert count >= 1, text
        assert secret.rstrip("=") not in masked
        assert scan(masked) == ()


@pytest.mark.requirement("hygiene:leaks:results")
@pytest.mark.parametrize("spelling", spellings(VALUE))
def test_a_structure_hides_no_spelling_that_a_text_shows(spelling: str):
    known = Scanner([VALUE])
    text = f"answer: {spelling}."
    masked, _ = known.mask(text)
    assert masked == f"answer: {marker(KNOWN)}."
    assert known.mask_json({"a": [text]})[0] == {"a": [masked]}


def test_a_finding_says_where_and_which_rule_but_never_the_value():
    token = github_token()
    (leak,) = scan(f"use {token} now")
    assert (leak.rule, leak.start, leak.end) == ("github-token", 4, 4 + len(token))
    finding = scan_json({"text": f"use {token} now"})
    assert token not in repr(finding)
    assert str(finding) == "github-token (1)"


def test_positions_are_in_characters_also_after_text_that_is_not_ascii():
    token = github_token()
    for before in ("", "é漢字 ", "👩\u200d💻 ", "\ud800 "):
        text = f"{before}{token} é"
        (leak,) = scan(text)
        assert text[leak.start : leak.end] == token


@pytest.mark.parametrize("size", [1, 300_000, 1_000_000])
def test_a_credential_at_either_end_of_a_text_is_found_however_long_it_is(size: int):
    scanner, padding = Scanner([VALUE]), "-" * size
    for text in (f"{VALUE}{padding}", f"{padding}{VALUE}"):
        masked, count = scanner.mask(text)
        assert (count, VALUE in masked, len(masked)) == (1, False, size + len(marker(KNOWN)))


def test_a_credential_across_two_slices_of_a_long_text_is_found_once():
    token = github_token()
    for shift in range(-45, 5):
        before = "é" + "." * ((1 << 18) + shift)
        assert mask(f"{before}{token}!") == (f"{before}{marker('github-token')}!", 1)


def test_overlapping_findings_become_one_named_by_the_more_specific_rule():
    text = 'api_key = "' + github_token() + '"'
    assert [leak.rule for leak in scan(text)] == ["github-token"]
    assert mask(text) == (f'api_key = "{marker("github-token")}"', 1)


def test_only_the_secret_part_of_a_url_is_masked():
    text = "postgresql://app:Zk81" + "qpLw@db/app"
    assert mask(text)[0] == f"postgresql://app:{marker('basic-auth')}@db/app"


def test_many_credentials_of_one_kind_in_one_text_are_all_masked():
    tokens = [github_token(seed) for seed in range(200)]
    masked, count = mask("\n".join(tokens))
    assert count == 200
    assert not any(token in masked for token in tokens)


@pytest.mark.parametrize(
    "text",
    [
        "password = os.environ['DB_PASSWORD_1']",
        "password: ${DB_PASSWORD1}",
        'api_key = "<your api key 1>"',
        'secret = "changeme123"',
        "token = tokenize.generate_tokens(readline1)",
        "nextPageToken=CAUQ" + "AA1b2C3d4E5f6",
        '"max_tokens": 4096',
        "https://user:password@example.org",
        "https://user:<password>@example.org",
        "Authorization: Bearer <token>",
        "Authorization: Bearer theNameOfTheheaderisgiven",
        "-----BEGIN PRIVATE KEY----- is how such a file starts, and this is prose",
        "task-skeleton-for-the-next-iteration-of-the-loop",
        "AKIA" + "IOSFODNN7EXAMPLE",
    ],
)
def test_placeholders_and_ordinary_names_are_left_alone(text: str):
    assert scan(text) == ()


def test_a_token_without_digits_is_told_from_words_by_four_capitals_within_it():
    token = "qwNertyBuiopTasdfghWjkl"
    assert mask(f"Authorization: Bearer {token}") == (
        f"Authorization: Bearer {marker('authorization')}",
        1,
    )


def test_a_token_behind_an_escaped_character_is_found():
    token = "sk" + "-proj-" + "".join(random.Random(3).choices(ALNUM, k=60))
    for text in (f"key%3D{token}", f"line\\n{token}", f'{{\\"k\\":\\"{token}\\"}}'):
        assert token not in mask(text)[0]


def test_a_known_value_is_found_in_every_usual_spelling():
    scanner = Scanner([VALUE])
    raw = VALUE.encode()
    spellings = [
        VALUE,
        quote(VALUE, safe=""),
        quote(VALUE),
        quote_plus(VALUE),
        re.sub("%..", lambda m: m[0].lower(), quote(VALUE, safe="")),
        raw.hex(),
        raw.hex().upper(),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE)[1:-1].replace("/", r"\/"),
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
    ]
    for spelling in spellings:
        assert scanner.mask(f"a {spelling} b") == (f"a {marker(KNOWN)} b", 1)


@given(st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_a_known_value_is_found_in_base64_at_any_alignment(before: bytes, after: bytes, safe: bool):
    encode = base64.urlsafe_b64encode if safe else base64.b64encode
    text = encode(before + VALUE.encode() + after).decode()
    assert [leak.rule for leak in Scanner([VALUE]).scan(text)] == [KNOWN]


def test_a_value_too_short_to_be_told_from_ordinary_words_is_left_out_and_counted():
    scanner = Scanner(["warn", "masked", VALUE])
    assert scanner.too_short == 2
    assert scanner.scan("warn: masked") == ()


def test_a_structure_without_credentials_comes_back_as_the_same_object():
    value = {"content": [{"type": "text", "text": "hello"}], "n": 1}
    masked, finding = mask_json(value)
    assert masked is value
    assert finding == LeakFinding({})
    assert finding.total == 0


def test_content_blocks_and_structured_content_are_masked_where_they_hold_something():
    token = github_token()
    value: dict[str, Any] = {
        "content": [{"type": "text", "text": f"it is {token}"}, {"type": "text", "text": "plain"}],
        "structuredContent": {"list": [1, None, {token: token}]},
    }
    masked, finding = mask_json(value)
    assert masked == {
        "content": [
            {"type": "text", "text": f"it is {marker('github-token')}"},
            {"type": "text", "text": "plain"},
        ],
        "structuredContent": {"list": [1, None, {marker("github-token"): marker("github-token")}]},
    }
    assert finding.counts == {"github-token": 1}  # one value, however often it is there
    assert token in value["content"][0]["text"]


def test_the_name_of_a_member_tells_that_its_value_is_a_credential():
    masked, finding = mask_json(
        {"password": "Zk81" + "qpLw", "nextPageToken": "CAUQ1b2C3d4E5f6", "token": "none"}
    )
    assert masked["password"] == marker("assignment")
    assert masked["nextPageToken"] == "CAUQ1b2C3d4E5f6"
    assert finding.total == 1


@pytest.mark.parametrize("odd", [1 << 80, "\ud800"])
def test_a_structure_that_cannot_be_serialised_is_still_read(odd: object):
    token = github_token()
    masked, finding = mask_json({"odd": odd, "t": token})
    assert masked == {"odd": odd, "t": marker("github-token")}
    assert finding.total == 1


def test_no_pattern_has_a_quantifier_without_a_bound():
    """What makes every rule linear: bounded repeats, possessive where they are long."""
    for rule in RULES:
        bare = re.sub(r"\\.", "", rule.pattern.pattern)
        bare = re.sub(r"\[\^?\]?[^\]]*\]", "C", bare)
        assert "*" not in bare, rule.id
        assert not re.search(r"(?<!\})\+", bare), rule.id
        assert not re.search(r"\{\d+,\}", bare), rule.id


def test_the_literals_lose_nothing_that_the_patterns_alone_would_find():
    for _, _, text in CORPUS:
        covered = {at for leak in scan(text) for at in range(leak.start, leak.end)}
        for rule in RULES:
            for match in rule.pattern.finditer(text):
                if rule.judge is None or rule.judge(match):
                    assert covered.issuperset(range(*match.span(rule.group))), (rule.id, text)


@given(st.text(alphabet="aA1-_=: \"'/@.é", max_size=80), st.integers(0, len(CORPUS) - 1))
def test_masking_leaves_nothing_that_a_second_scan_finds(noise: str, pick: int):
    text = noise + CORPUS[pick][2] + noise
    masked, _ = mask(text)
    assert scan(masked) == ()
    assert mask(masked) == (masked, 0)


@given(
    st.lists(
        st.sampled_from(["token=", "a1b2c3d4e5", " ", "\n", "sk" + "-", ":", '"']), max_size=900
    )
)
def test_dense_and_sparse_hits_agree_on_what_is_left(parts: list[str]):
    masked, _ = mask("".join(parts))
    assert scan(masked) == ()


def test_entropy_and_placeholders_behave_as_their_names_say():
    assert entropy("aaaa") == 0
    assert entropy("abcd") == 2
    assert placeholder("<token>")
    assert placeholder("Password")
    assert not placeholder("Zk81qpLw")
