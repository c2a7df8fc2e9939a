"""What strict JSON refuses, what it keeps, and that neither costs much."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.wire.strict_json import MAX_BYTES, StrictJsonError, dumps, loads

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=20,
)

REFUSED = {
    "duplicate key": b'{"a":1,"a":2}',
    "duplicate key with spaces": b'{"a": 1, "a": 2}',
    "duplicate key, escaped": b'{"a":{"b":1,"\\u0062":2}}',
    "NaN": b"[NaN]",
    "Infinity": b'{"n":-Infinity}',
    "an infinite exponent": b"[1e999]",
    "an infinite exponent with spaces": b'{"n": [1E+0999]}',
    "an infinite number of digits": b"[" + b"9" * 400 + b".0]",
    "an integer no float could hold": b"[" + b"9" * 400 + b"]",
    "invalid UTF-8": b'"\xff"',
    "an encoded surrogate": b'"\xed\xa0\x80"',
    "a lone surrogate": b'"\\ud800"',
    "reversed surrogates": b'"\\udc00\\ud800"',
    "two values": b"1 2",
    "nothing": b"",
    "a trailing comma": b"[1,]",
    "a control character": b'"\x01"',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "65 levels": b"[" * 65 + b"]" * 65,
    "65 levels of objects": b'{"a": ' * 65 + b"1" + b"}" * 65,
    "200,000 levels": b"[" * 200_000 + b"]" * 200_000,
    "200,000 levels of objects": b'{"a":' * 200_000,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_two_readers_could_read_differently_is_refused(text: bytes):
    with pytest.raises(StrictJsonError):
        loads(text)


def test_a_hundred_megabytes_are_refused_unread():
    with pytest.raises(StrictJsonError, match="more than"):
        loads(b" " * (MAX_BYTES + 1))


def test_a_cap_may_be_lower():
    with pytest.raises(StrictJsonError, match="5 bytes, more than 4"):
        loads(b"[1,2]", max_bytes=4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"[" * 64 + b"]" * 64, None),
        (b'{"a":[1,2.5,"x",null,true]}', {"a": [1, 2.5, "x", None, True]}),
        (b' { "a" : 1 } \r', {"a": 1}),
        (b"[18446744073709551616]", [2**64]),
        (b"[-123456789012345678901234567890]", [-123456789012345678901234567890]),
        (b'["1e999 is only text, and so is \\ud83d\\ude00"]', ["1e999 is only text, and so is 😀"]),
        (b"[1e308,1e-999]", [1e308, 0.0]),
        (b'{"a":1,"A":2,"b":{"a":3}}', {"a": 1, "A": 2, "b": {"a": 3}}),
        (b'["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]', ["[" * 68]),
    ],
)
def test_ordinary_text_is_read_as_it_is(text: bytes, value: Any):
    assert loads(text) == (json.loads(text) if value is None else value)


@given(JSON_VALUES)
def test_what_is_written_reads_back_the_same(value: Any):
    assert loads(dumps(value)) == value


@given(JSON_VALUES)
def test_spaces_and_escapes_change_nothing(value: Any):
    assert loads(json.dumps(value, indent=1).encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes):
    try:
        value = loads(data)
    except StrictJsonError:
        return
    assert json.loads(data) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"\$: nan is not JSON"),
        ({"a": [1, {"b": float("-inf")}]}, r"\$\.a\[1\]\.b: -inf is not JSON"),
        ({"big": 2**70, "n": float("nan")}, r"\$\.n: nan"),
        ({"a": ["\ud800"]}, r"\$\.a\[0\]: a lone surrogate"),
        ({"\udfff": 1}, "a key holds a lone surrogate"),
        ({1: 2}, "the key 1 is not a string"),
        ({"a": {1, 2}}, r"\$\.a: set is not JSON"),
        ({"a": b"bytes"}, r"\$\.a: bytes is not JSON"),
    ],
)
def test_what_json_cannot_say_is_named(value: Any, message: str):
    with pytest.raises(StrictJsonError, match=message):
        dumps(value)


def test_large_integers_leave_exactly():
    assert dumps({"n": 2**70, "m": [-(2**64), None]}) == (
        b'{"n":1180591620717411303424,"m":[-18446744073709551616,null]}'
    )


@pytest.mark.parametrize("leaf", [1, None, 2**70])
def test_a_value_nested_too_deep_is_not_written(leaf: Any):
    value = leaf
    for _ in range(65):
        value = [value]
    with pytest.raises(StrictJsonError, match="deeper than 64"):
        dumps(value)
    assert loads(dumps(value[0])) == value[0]


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"a": ', '["\\u0041",'])
@pytest.mark.parametrize("beside", [0, 100])
def test_the_depth_that_is_allowed_is_the_same_however_much_stands_beside_it(
    opening: str, beside: int
):
    closing = "]" if opening[0] == "[" else "}"

    def nested(depth: int) -> bytes:
        deep = opening * depth + "[]" + closing * depth
        return f"[{'[1],' * beside}{deep}]".encode()

    value = loads(nested(62))
    assert loads(dumps(value)) == value
    with pytest.raises(StrictJsonError, match="deeper than 64"):
        loads(nested(63))
    with pytest.raises(StrictJsonError, match="deeper than 64"):
        dumps(json.loads(nested(63)))


@given(JSON_VALUES, st.sampled_from([float("nan"), float("inf"), "\ud800"]))
def test_what_json_cannot_say_is_found_beside_any_null(value: Any, unsayable: Any):
    for beside in ([None, value, unsayable], {"a": None, "b": value, "c": (unsayable,)}):
        with pytest.raises(StrictJsonError):
            dumps(beside)


@given(JSON_VALUES)
def test_tuples_are_written_as_lists_beside_a_null_too(value: Any):
    assert dumps((None, value)) == dumps([None, value])


def test_a_value_that_holds_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(StrictJsonError):
        dumps(value)
