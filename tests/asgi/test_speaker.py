"""For whom a request speaks, by its token, by the header, or by what the request says itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.asgi.errors import Refused
from bascule.asgi.speaker import check_named, speaker
from bascule.auth.identity import Principal
from bascule.model.person import is_person_id
from tests.asgi.caller import http_scope

USER = b"x-bascule-user"
GATEWAY = Principal("gateway", "client", "t", "tok-1", acts_for_users=True)
ALICES = Principal("laptop", "client", "t", "tok-2", person="alice")
NOBODYS = Principal("script", "client", "t", "tok-3")


def scope(principal: Principal, *named: bytes) -> dict[str, Any]:
    found = http_scope("GET", "/", [(USER, name) for name in named])
    return {**found, "principal": principal}


@pytest.mark.requirement("security:people:own")
def test_a_token_of_a_person_or_of_nobody_speaks_for_itself():
    assert speaker(scope(ALICES)) is ALICES
    assert speaker(scope(NOBODYS)) is NOBODYS


@pytest.mark.requirement("security:people:acting")
def test_an_acting_token_speaks_for_whom_it_names():
    spoken = speaker(scope(GATEWAY, b"alice"))
    assert (spoken.person, spoken.token_id, spoken.owner) == ("alice", "tok-1", ("tok-1", "alice"))
    assert GATEWAY.person is None
    assert speaker(scope(GATEWAY), "bob").person == "bob"
    assert speaker(scope(GATEWAY, b"bob"), "bob").person == "bob"


def test_what_a_request_says_counts_from_an_acting_token_alone():
    """From any other, ``user`` is OpenAI's field and nobody's identity."""
    assert speaker(scope(ALICES), "bob").person == "alice"
    assert speaker(scope(NOBODYS), "bob").person is None
    assert speaker(scope(NOBODYS), {"not": "a name"}).person is None


@pytest.mark.requirement("security:people:acting")
@pytest.mark.parametrize(
    ("named", "said", "where"),
    [
        ((), None, "X-Bascule-User"),
        ((b"",), None, "X-Bascule-User"),
        ((b"a" * 129,), None, "X-Bascule-User"),
        ((b"a b",), None, "X-Bascule-User"),
        ((b"-alice",), None, "X-Bascule-User"),
        ((b"al\xefce",), None, "X-Bascule-User"),
        ((b"alice,bob",), None, "X-Bascule-User"),
        ((b"alice", b"bob"), None, "X-Bascule-User"),
        ((b"alice", b"alice"), None, "X-Bascule-User"),
        ((b"alice",), "bob", "X-Bascule-User"),
        ((), "", "user"),
        ((), "a" * 129, "user"),
        ((), "alice\n", "user"),
        ((), 7, "user"),
        ((), ["alice"], "user"),
        ((b"alice",), {"id": "alice"}, "user"),
    ],
)
def test_an_acting_token_must_name_one_person_and_as_one_is_named(
    named: tuple[bytes, ...], said: Any, where: str
):
    with pytest.raises(Refused) as refused:
        speaker(scope(GATEWAY, *named), said)
    assert refused.value.code == "invalid_request"
    assert str(refused.value).startswith(f"{where}: ")
    assert set(refused.value.details.values()) == {where}


@pytest.mark.requirement("security:people:header")
@pytest.mark.parametrize("principal", [ALICES, NOBODYS])
@pytest.mark.parametrize("named", [b"alice", b"bob", b"", b"\xff"])
def test_the_guard_refuses_the_header_of_any_other_token(principal: Principal, named: bytes):
    """One's own name is no exception: the header says that the token may say others'."""
    with pytest.raises(Refused) as refused:
        check_named(scope(principal, named))
    assert refused.value.code == "person_refused"


@given(st.binary(max_size=140))
def test_whatever_the_header_holds_the_person_is_exactly_that_or_refused(name: bytes):
    if is_person_id(name.decode("latin-1")):
        assert str(speaker(scope(GATEWAY, name)).person).encode() == name
    else:
        with pytest.raises(Refused, match="X-Bascule-User"):
            speaker(scope(GATEWAY, name))
