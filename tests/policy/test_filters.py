"""An explanation has the filters of every layer, what they come to, and everything that blocks."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.platform import PlatformRecord
from bascule.policy.compose import Effective, compose
from bascule.policy.explain import explain
from bascule.policy.filters import filters_of, together
from tests.policy.build import registry, server, session, task

FS = server("fs", allowed_tools=["read_*", "write_*", "drop"])
OFF = server("off", enabled=False, allowed_tools=["read_*"])
PLATFORM = PlatformRecord(tool_denylist=("git/*", "drop"))
WORLD = registry(FS, OFF, server("git"), platform=PLATFORM)


def composed(**fields: Any) -> Effective:
    chosen = {"tool_allowlist": ["read_*", "git/log"], "tool_denylist": ["read_secret"], **fields}
    asked = session(tool_allowlist=["*_file", "read_dir"], tool_denylist=["read_secret", "x"])
    return compose(WORLD, task("fs", **chosen), asked)


@pytest.mark.requirement("policy:explain:layers")
def test_the_lists_of_each_layer_are_shown_as_far_as_they_are_about_the_server():
    found = filters_of(composed(), "fs")
    assert found is not None
    assert [(one.layer, one.source, one.allow, one.deny) for one in found.layers] == [
        ("platform", "server fs", ("read_*", "write_*", "drop"), ()),
        ("platform", "platform", None, ("drop",)),
        ("task", "task", ("read_*",), ("read_secret",)),
        ("session", "session", ("*_file", "read_dir"), ("read_secret", "x")),
    ]
    assert found.merged.allow == ("read_* & *_file", "read_dir")
    assert found.merged.deny == ("drop", "read_secret", "x")


@pytest.mark.requirement("policy:explain:layers")
@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([["*"]], ("*",)),
        ([["*"], ["read_*"]], ("read_*",)),
        ([["read_*"], ["read_file", "write"]], ("read_file",)),
        ([["read_*"], ["write_*"]], ()),
        ([["a*"], ["*b"], ["ab"]], ("ab",)),
        ([["fs/read_*"], ["read_*"]], ("fs/read_*",)),
        ([[], ["*"]], ()),
    ],
)
def test_lists_come_to_what_all_of_them_cover(lists: list[list[str]], expected: tuple[str, ...]):
    assert together(lists) == expected


@pytest.mark.requirement("policy:explain:layers")
def test_every_layer_that_blocks_is_named_and_the_first_decides():
    found = explain(composed(read_only=True), "fs/drop")
    assert [(one.layer, one.reason) for one in found.blocked_by] == [
        ("platform", "platform_denied"),
        ("task", "task_not_allowlisted"),
        ("task", "task_read_only"),
        ("session", "session_not_allowlisted"),
    ]
    assert found.decision == found.blocked_by[0]
    plain = found.plain()
    assert [row["reason"] for row in plain["blocked_by"]] == [
        one.reason for one in found.blocked_by
    ]
    assert plain["filters"]["merged"]["read_only"] is True
    text = str(found)
    for part in ("task_read_only", "session_not_allowlisted", "server fs (platform) allows read_*"):
        assert part in text


@pytest.mark.requirement("policy:explain:layers")
def test_a_servers_objections_are_all_named():
    off = compose(WORLD, task("fs", enabled=False))
    found = explain(off, "off")
    assert [one.reason for one in found.blocked_by] == [
        "server_disabled",
        "task_disabled",
        "not_allowed",
        "not_default",
    ]
    allowed = explain(composed(), "fs/read_file")
    assert (allowed.allowed, allowed.blocked_by) == (True, ())


@pytest.mark.requirement("policy:explain:layers")
def test_the_filters_of_a_server_outside_the_task_are_not_shown():
    found = explain(composed(), "git/log")
    assert (found.allowed, found.filters) == (False, None)
