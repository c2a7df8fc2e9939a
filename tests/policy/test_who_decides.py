"""Who asked does not decide: by token, by name, by person, by maker."""

from __future__ import annotations

import pytest

from bascule.model.approval import Approval, Decider, ExactCall, Separation
from bascule.policy.separation import objection

ASKED = Approval(
    id="apr-1",
    state="pending",
    call=ExactCall(
        task_id="t",
        server_id="s",
        tool_name="delete",
        arguments_digest="a",
        definition_digest="d",
        policy_digest="p",
        rule="r",
        person="alice",
        caller="agent",
        token_id="tok-1",
    ),
    session_id="s",
    request_id="r",
    revision=1,
    maker="carol",
    asked_at=0.0,
    expires_at=1.0,
    digest="d",
)


@pytest.mark.requirement("approval:four-eyes")
@pytest.mark.parametrize("separation", ["person", "token"])
@pytest.mark.parametrize(
    "by",
    [
        Decider(name="other", token_id="tok-1", person="bob"),
        Decider(name="agent", token_id="tok-2", person="bob"),
        Decider(name="AGENT", token_id="tok-2", person="bob"),
    ],
)
def test_neither_the_token_nor_one_of_its_name_ever_decides(by: Decider, separation: Separation):
    assert objection(ASKED, by, separation)


@pytest.mark.requirement("approval:four-eyes")
@pytest.mark.parametrize(
    "by",
    [
        Decider(name="other", token_id="tok-2", person="alice"),
        Decider(name="other", token_id="tok-2", person="carol"),
        Decider(name="carol", token_id="tok-2"),
        Decider(name="other", token_id="tok-2", maker="alice"),
        Decider(name="other", token_id="tok-2", maker="carol"),
    ],
)
def test_neither_the_person_nor_whoever_made_the_token_decides_among_people(by: Decider):
    assert objection(ASKED, by, "person")
    assert objection(ASKED, by, "token") is None


def test_somebody_else_decides():
    assert objection(ASKED, Decider(name="b", token_id="tok-2", person="bob"), "person") is None
