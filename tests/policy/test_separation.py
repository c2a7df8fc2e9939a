"""Who asked does not decide: by token, by name, as a person, or as who made the token."""

from __future__ import annotations

import pytest

from bascule.model.approval import Approval, Decider, ExactCall, Separation
from bascule.policy.separation import is_own, objection


def asked(
    *,
    caller: str | None = "desk",
    held: str | None = "tok-1",
    person: str | None = None,
    maker: str | None = None,
) -> Approval:
    call = ExactCall(
        task_id="t",
        server_id="fs",
        tool_name="delete",
        arguments_digest="a",
        definition_digest="d",
        policy_digest="p",
        rule="always",
        person=person,
        caller=caller,
        token_id=held,
    )
    return Approval(
        id="apr-1",
        state="pending",
        call=call,
        session_id="s",
        request_id="r",
        revision=1,
        maker=maker,
        asked_at=1.0,
        expires_at=2.0,
        digest="x",
    )


def by(
    name: str = "bob",
    held: str | None = "tok-2",
    person: str | None = None,
    maker: str | None = None,
) -> Decider:
    return Decider(name=name, token_id=held, person=person, maker=maker)


@pytest.mark.parametrize("separation", ["token", "person"])
def test_neither_the_token_that_asked_decides_nor_one_of_its_name(separation: Separation):
    assert (
        objection(asked(), by(held="tok-1"), separation) == "the token that asked does not decide"
    )
    assert "'desk'" in (objection(asked(), by("desk"), separation) or "")
    assert objection(asked(), by(), separation) is None


def test_a_call_without_a_token_or_a_name_is_nobodys_in_particular():
    nobodys = asked(caller=None, held=None)
    assert objection(nobodys, by(held=None), "person") is None
    assert objection(nobodys, by(), "person") is None
    assert objection(asked(), by(held=None), "person") is None


OWN = {
    "the same person": (asked(person="ann"), by(person="ann")),
    "the person by name": (asked(person="ann"), by("ann")),
    "by a token that the person made": (asked(person="ann"), by(maker="ann")),
    "who made the token that asked": (asked(maker="ann"), by("ann")),
    "tokens of one maker": (asked(maker="ann"), by(maker="ann")),
    "whose person made the token that asked": (asked(maker="ann"), by(person="ann")),
}
OTHERS = {
    "strangers": (asked(person="ann", maker="root"), by("bob", person="bea", maker="joe")),
    "a person whose token the same administrator made": (
        asked(person="ann", maker="root"),
        by("bob", person="bea", maker="root"),
    ),
    "nobody known on either side": (asked(), by()),
}


@pytest.mark.parametrize("name", OWN)
def test_a_call_of_ones_own_is_left_to_another_person(name: str):
    approval, decider = OWN[name]
    assert is_own(approval, decider)
    assert "approvals.separation" in (objection(approval, decider, "person") or "")
    assert objection(approval, decider, "token") is None


@pytest.mark.parametrize("name", OTHERS)
def test_anybody_else_may_decide(name: str):
    approval, decider = OTHERS[name]
    assert not is_own(approval, decider)
    assert objection(approval, decider, "person") is None
