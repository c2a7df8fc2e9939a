"""JSON as editors write it comes down to JSON, and to nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import InvalidRecord
from bascule.files.jsonc import plain_json
from bascule.wire.records import parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_what_is_json_already_stays_as_it_is(value: object, ascii_only: bool):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode("utf-8", "surrogatepass")
    assert plain_json(text) == text


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "b" // said\n}',
        '{/* one\ntwo */ "a": "b"}',
        '{"a": "b",}',
        '{"a": "b", // last\n /* really */ }',
        '\ufeff{"a": "b"}',
        '// first\r\n{"a": "b"}',
        '/**/{"a": "b"}/* "c": "d" */',
    ],
)
def test_comments_commas_and_a_mark_are_left_out(text: str):
    assert json.loads(plain_json(text.encode())) == {"a": "b"}


@pytest.mark.parametrize(
    "value", ["// no", "/* no */", "a,]", 'say \\" // no', "https://example.com/mcp", "\\\\"]
)
def test_what_stands_in_a_string_is_kept(value: str):
    text = f'{{"a": "{value}"}}'.encode()
    assert plain_json(text) == text


@pytest.mark.parametrize("text", ['{"a": 1 /* no end', '{"a": 1,, }', '{"a" // 1\n}', "[1,,]"])
def test_what_is_broken_stays_broken(text: str):
    with pytest.raises(InvalidRecord):
        parse(plain_json(text.encode()), "json")


def test_a_complaint_names_the_right_line():
    text = b'{\n  // comment\n  "a": 1, /* two\n lines */\n  oops\n}'
    with pytest.raises(InvalidRecord, match="line 5 column 3"):
        parse(plain_json(text), "json")
