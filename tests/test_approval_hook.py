"""What a receiver checks: only Bascule's own questions, just now, and each under its own id."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bascule.approval_hook import Unverified, signed_headers, verify
from bascule.testing import FakeClock
from tests.control.hook_site import KEY, PLAIN

BODY = json.dumps(PLAIN).encode()
CLOCK = FakeClock()


def headers(id: str = "apr-1", body: bytes = BODY, late: float = 0.0) -> dict[str, str]:
    return signed_headers(KEY, id, body, CLOCK.now() - late)


def refused(given: Mapping[str, str], body: bytes = BODY, key: bytes = KEY) -> str:
    with pytest.raises(Unverified) as error:
        verify(key.hex(), given, body, clock=CLOCK)
    return str(error.value)


@pytest.mark.requirement("approval:hook:signed")
def test_the_signature_is_what_the_page_says():
    given = headers()
    message = b"%d.apr-1.%b" % (CLOCK.now(), BODY)
    expected = hmac.new(KEY, message, hashlib.sha256).hexdigest()
    assert given == {
        "X-Bascule-Timestamp": f"{CLOCK.now():.0f}",
        "X-Bascule-Approval": "apr-1",
        "X-Bascule-Signature": f"v1={expected}",
    }


@pytest.mark.parametrize("change", [str.lower, str.upper, str])
def test_a_question_is_returned_whatever_the_case_of_its_headers(change: type[str]):
    given = {change(name): value for name, value in headers().items()}
    question = verify(f"{KEY.hex()}\n", given, BODY, clock=CLOCK)
    assert (question.id, question.tool, question.person) == ("apr-1", "delete_note", "ada")
    assert question.arguments["note"] == 12345678901234567890123
    assert bytes(question.definition_json) == b'{"name": "delete_note"}'
    assert json.loads(question.answer("ask")) == {
        "decision": "ask",
        "id": "apr-1",
        "digest": "d1",
    }
    assert json.loads(question.answer("deny", "no"))["reason"] == "no"


def test_fields_that_a_later_version_adds_are_no_trouble():
    body = json.dumps({**PLAIN, "more": 1}).encode()
    assert verify(KEY.hex(), headers(body=body), body, clock=CLOCK).id == "apr-1"


@pytest.mark.requirement("approval:hook:signed")
@given(where=some.integers(0, len(BODY) - 1), bit=some.integers(0, 7))
def test_no_changed_byte_is_taken(where: int, bit: int):
    changed = bytearray(BODY)
    changed[where] ^= 1 << bit
    assert "signature" in refused(headers(), bytes(changed))


@pytest.mark.requirement("approval:hook:signed")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Bascule-Timestamp", f"{CLOCK.now() - 1:.0f}"),
        ("X-Bascule-Approval", "apr-2"),
        ("X-Bascule-Signature", "v1="),
        ("X-Bascule-Signature", "v1=\udcff" + "é" * 64),
        ("X-Bascule-Signature", headers()["X-Bascule-Signature"].removeprefix("v1=")),
        ("X-Bascule-Signature", headers()["X-Bascule-Signature"].replace("v1", "v0")),
    ],
)
def test_no_changed_header_is_taken(name: str, value: str):
    assert "signature" in refused({**headers(), name: value})


@pytest.mark.parametrize("name", headers())
def test_a_missing_header_is_named(name: str):
    given = headers()
    del given[name]
    assert refused(given) == f"there is no header {name}"


@pytest.mark.parametrize("late", [-301.0, 301.0, 86_400.0])
def test_a_question_counts_for_five_minutes(late: float):
    assert "300 seconds" in refused(headers(late=late))
    assert verify(KEY.hex(), headers(late=299 if late > 0 else -299), BODY, clock=CLOCK)


def test_a_timestamp_that_is_none_is_refused_though_it_is_signed():
    for text in ("", "soon", "1e9", "-5", "१८००००००००", f" {CLOCK.now():.0f}"):
        message = f"{text}.apr-1.".encode() + BODY
        signed = f"v1={hmac.new(KEY, message, hashlib.sha256).hexdigest()}"
        given = {**headers(), "X-Bascule-Timestamp": text, "X-Bascule-Signature": signed}
        assert "300 seconds" in refused(given)


def test_a_body_about_another_approval_is_refused():
    assert "another approval" in refused(headers(id="apr-2"))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id": "apr-1"}', b"\xff"])
def test_a_body_that_is_no_question_is_refused(body: bytes):
    assert "not a question" in refused(headers(body=body), body)


@pytest.mark.parametrize("key", ["", "  ", "abc", "zz" * 32, "00" * 31, "00" * 33])
def test_what_is_not_a_key_is_refused_and_not_repeated(key: str):
    with pytest.raises(ValueError, match="bascule approvals hook-key") as error:
        verify(key, headers(), BODY, clock=CLOCK)
    assert not key.strip() or key not in str(error.value)


def test_another_key_is_not_the_key():
    assert "signature" in refused(headers(), key=bytes(32))
