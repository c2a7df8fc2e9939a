"""Profiles: servers and filters that tasks share, and that nothing adds to."""

from __future__ import annotations

import pytest

from bascule.errors import SessionRefused
from bascule.policy.compose import compose
from bascule.policy.explain import diff
from tests.policy.build import allowed, profile, reasons, registry, server, session, task

TOOLS = ("read", "write", "delete")
SERVERS = tuple(server(name, effects={"read": ["read"]}) for name in ("gitlab", "fs", "jira"))
REVIEW = profile(
    "code-review",
    default_server_ids=["gitlab", "fs"],
    allowed_server_ids=["gitlab", "fs", "jira"],
    tool_denylist=["delete"],
    environments={
        "prod": {"default_server_ids": ["gitlab"], "read_only": True},
        "dev": {"tool_denylist": ["write"]},
    },
)
WORLD = registry(*SERVERS, profiles=[REVIEW])


@pytest.mark.requirement("task:profile:servers")
def test_a_profile_gives_a_task_its_servers_and_filters():
    effective = compose(WORLD, task(profile="code-review"))
    assert effective.servers == ("gitlab", "fs")
    assert allowed(effective, "fs", *TOOLS) == ["read", "write"]
    assert compose(WORLD, task(profile="code-review"), session("jira")).servers == ("jira",)


@pytest.mark.requirement("task:profile:environment")
def test_the_environment_chosen_decides_what_a_profile_gives():
    in_prod = compose(WORLD, task(profile="code-review"), environment="prod")
    assert in_prod.servers == ("gitlab",)
    assert allowed(in_prod, "gitlab", *TOOLS) == ["read"]
    in_dev = compose(WORLD, task(profile="code-review"), environment="dev")
    assert in_dev.servers == ("gitlab", "fs")
    assert allowed(in_dev, "fs", *TOOLS) == ["read"]


@pytest.mark.requirement("task:profile:environment")
def test_an_environment_the_profile_says_nothing_about_is_a_warning():
    effective = compose(WORLD, task(profile="code-review"), environment="staging")
    assert effective.servers == ("gitlab", "fs")
    assert any("staging" in warning for warning in effective.warnings)


@pytest.mark.requirement("task:profile:environment")
def test_an_environment_cannot_give_back_what_the_profile_leaves_out():
    wide = profile(
        "p",
        default_server_ids=["gitlab"],
        tool_denylist=["delete"],
        environments={
            "dev": {"allowed_server_ids": ["gitlab", "fs"], "tool_allowlist": ["delete"]}
        },
    )
    world = registry(*SERVERS, profiles=[wide])
    effective = compose(world, task(profile="p"), environment="dev")
    assert allowed(effective, "gitlab", *TOOLS) == []
    with pytest.raises(SessionRefused):
        compose(world, task(profile="p"), session("fs"), environment="dev")


@pytest.mark.requirement("task:profile:overrides", "task:profile:never-add")
def test_overrides_narrow_a_profile():
    narrowed = task(
        profile="code-review",
        profile_overrides={"allowed_server_ids": ["fs"], "tool_allowlist": ["read", "delete"]},
    )
    effective = compose(WORLD, narrowed)
    assert effective.servers == ("fs",)
    assert allowed(effective, "fs", *TOOLS) == ["read"]
    with pytest.raises(SessionRefused):
        compose(WORLD, narrowed, session("gitlab"))


@pytest.mark.requirement("task:profile:never-add")
def test_explicit_keys_and_overrides_never_add_to_a_profile():
    for fields in (
        {"default_server_ids": ["fs", "jira"], "allowed_server_ids": ["fs", "jira", "other"]},
        {"profile_overrides": {"default_server_ids": ["fs", "jira"]}},
    ):
        asked = task(profile="code-review", **fields)
        assert compose(WORLD, asked).servers == ("fs",)
        with pytest.raises(SessionRefused, match="gitlab"):
            compose(WORLD, asked, session("gitlab"))
    loose = task(profile="code-review", tool_allowlist=["*", "delete"])
    assert allowed(compose(WORLD, loose), "fs", *TOOLS) == ["read", "write"]


@pytest.mark.requirement("task:profile:unknown")
def test_an_unknown_profile_gives_no_server_and_says_so():
    effective = compose(WORLD, task("fs", profile="gone"))
    assert effective.servers == ()
    assert reasons(effective)["fs"] == ("task", "unknown_profile")
    assert any("gone" in warning for warning in effective.warnings)
    with pytest.raises(SessionRefused):
        compose(WORLD, task("fs", profile="gone"), session("fs"))


@pytest.mark.requirement("task:tags:select", "task:profile:servers")
def test_a_profile_may_select_by_tag():
    world = registry(
        server("a", tags=["scm"]),
        server("b", tags=["web"]),
        profiles=[profile("p", server_tags=["scm"])],
    )
    assert compose(world, task(profile="p")).servers == ("a",)
    assert compose(world, task("b", profile="p")).servers == ()


def test_a_source_that_names_no_server_bounds_none():
    world = registry(*SERVERS, profiles=[profile("filters", tool_denylist=["delete"])])
    effective = compose(world, task("fs", profile="filters"))
    assert effective.servers == ("fs",)
    assert allowed(effective, "fs", *TOOLS) == ["read", "write"]


@pytest.mark.requirement("task:profile:review")
def test_a_change_of_a_profile_shows_as_a_difference_in_access():
    changed = profile(
        "code-review", default_server_ids=["gitlab", "jira"], tool_denylist=["delete", "write"]
    )
    before = compose(WORLD, task(profile="code-review"))
    after = compose(registry(*SERVERS, profiles=[changed]), task(profile="code-review"))
    change = diff(before, after)
    assert change.servers_gained == ("jira",)
    assert [line.server for line in change.servers_lost] == ["fs"]
    assert any("profile code-review tool_denylist" in line for line in change.filters)
    assert "write" in str(change)
