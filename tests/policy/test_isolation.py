"""What a server is kept from, and who decided that, in words."""

from __future__ import annotations

import pytest

from bascule.model.session import SessionRequest
from bascule.model.task import TaskPolicy
from bascule.policy.compose import compose
from bascule.policy.explain import explain
from bascule.policy.isolation import governed, isolation_notes
from tests.policy.build import platform, registry, server

FLOOR = platform(
    sandbox={"level": "landlock", "required": True, "network": "none", "memory_mb": 64}
)


@pytest.mark.requirement("record:sandbox:floor")
def test_what_the_floor_decides_is_named_field_by_field():
    record = server("fs", sandbox={"level": "limits"})
    assert isolation_notes(record, FLOOR) == (
        "sandbox landlock, required; network none",
        "sandbox: level limits became landlock by the platform's floor",
        "sandbox: required false became true by the platform's floor",
        "sandbox: network full became none by the platform's floor",
        "sandbox: memory_mb 4096 became 64 by the platform's floor",
    )
    assert isolation_notes(record, platform()) == ("sandbox limits; network full",)


@pytest.mark.requirement("record:sandbox:floor")
def test_an_explanation_of_a_server_says_what_it_is_kept_from():
    known = registry(server("fs"), platform=FLOOR)
    policy = TaskPolicy(enabled=True, default_server_ids=("fs",))
    found = explain(compose(known, policy, SessionRequest()), "fs")
    assert found.notes[0] == "sandbox landlock, required; network none"
    assert "note    sandbox landlock" in str(found)


def test_a_floor_that_asks_for_nothing_and_a_remote_server_leave_a_record_as_it_is():
    local = server("fs", sandbox={"level": "limits"})
    assert governed(local, platform()) is local
    bare = server("fs")
    assert governed(bare, platform()) is bare
    far = server("far", transport="streamable_http", stdio=None, http={"url": "https://a.example"})
    assert governed(far, FLOOR) is far
    assert isolation_notes(far, FLOOR) == ()
