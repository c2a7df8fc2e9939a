"""JSON bodies as structs, and ETags."""

from __future__ import annotations

import pytest
from msgspec import Struct
from starlette.requests import Request

from bascule.asgi.errors import Refused
from bascule.asgi.json import (
    as_struct,
    check_if_none_match,
    if_match,
    is_unchanged,
    json_response,
    make_etag,
    not_modified,
    read_object,
)
from bascule.errors import InvalidRecord
from tests.asgi.caller import Given, http_scope, raw_headers

TAG = make_etag("store", 7)


class Call(Struct, frozen=True):
    name: str
    timeout_ms: int = 1000


def request(headers: Given, body: bytes = b"") -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(http_scope("GET", "/", raw_headers(headers)), receive)


def test_plain_values_become_a_struct_or_all_their_problems():
    assert as_struct({"name": "n"}, Call) == Call("n")
    with pytest.raises(InvalidRecord) as raised:
        as_struct({"name": 3, "timeout_ms": "x", "nme": "n"}, Call)
    assert {line.partition(":")[0] for line in raised.value.problems} == {
        "name",
        "timeout_ms",
        "nme",
    }


@pytest.mark.parametrize("body", [b"[]", b"3", b'"x"', b"null"])
async def test_a_body_that_must_be_an_object_is_nothing_else(body: bytes):
    with pytest.raises(Refused, match="must be a JSON object"):
        await read_object(request({}, body))


def test_an_answer_carries_its_tag():
    answer = json_response({"a": 1}, 201, etag=TAG, headers={"Location": "/x"})
    assert (answer.status_code, answer.body) == (201, b'{"a":1}')
    assert answer.headers["etag"] == '"store-7"'
    assert answer.headers["location"] == "/x"


@pytest.mark.parametrize("part", ['a"b', "a b", "a\nb"])
def test_a_tag_cannot_be_made_of_what_ends_it(part: str):
    with pytest.raises(ValueError, match="cannot stand in an ETag"):
        make_etag(part)


@pytest.mark.parametrize(
    ("header", "unchanged"),
    [
        ('"store-7"', True),
        ('W/"store-7"', True),
        ('"store-6", "store-7"', True),
        ("*", True),
        ('"store-6"', False),
        ('"store-70"', False),
    ],
)
def test_a_reader_that_has_the_state_is_told_so(header: str, unchanged: bool):
    assert is_unchanged(request({"If-None-Match": header}), TAG) is unchanged


def test_without_a_condition_nothing_is_unchanged_and_everything_matches():
    plain = request({})
    assert not is_unchanged(plain, TAG)
    assert if_match(plain) is None
    check_if_none_match(plain, TAG)


def test_not_modified_has_a_tag_and_no_body():
    answer = not_modified(TAG)
    assert (answer.status_code, answer.headers["etag"], answer.body) == (304, TAG, b"")


def test_only_create_is_refused_when_it_is_there():
    asked = request({"If-None-Match": "*"})
    check_if_none_match(asked, None)
    with pytest.raises(Refused, match="stored already"):
        check_if_none_match(asked, TAG)


@pytest.mark.parametrize("header", ["store-7", '"a', '"a" "b"', '"a",', "", 'w/"a"', '*, "a"'])
def test_a_condition_that_cannot_be_read_is_refused_rather_than_left_out(header: str):
    with pytest.raises(Refused) as raised:
        if_match(request({"If-Match": header}))
    assert raised.value.code == "invalid_request"


def test_tags_of_several_headers_count_together():
    asked = request([("If-Match", '"a"'), ("If-Match", 'W/"b", "c"')])
    assert if_match(asked) == ('"a"', 'W/"b"', '"c"')
