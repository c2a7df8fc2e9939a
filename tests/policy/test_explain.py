"""Explanations: readable when printed, objects when used."""

from __future__ import annotations

import pytest

from bascule.model.decision import MEANING
from bascule.policy.compose import compose
from bascule.policy.explain import explain, literal_tools
from tests.policy.build import access, registry, server, session, task

WORLD = registry(
    server("fs", allowed_tools=["read_*", "write_file"], effects={"read": ["read_*"]}),
    server("gitlab", tool_namespace="scm.gl", approval_policy={"default": "always"}),
    server("off", enabled=False),
    revision=42,
)
EFFECTIVE = compose(WORLD, task("fs", "gitlab", "off", tool_denylist=["write_*"]))


@pytest.mark.requirement("policy:explain")
@pytest.mark.parametrize("name", ["mcp__fs__write_file", "mcp.fs.write_file", "fs/write_file"])
def test_a_tool_is_explained_in_every_spelling(name: str):
    for subject in (EFFECTIVE, access(EFFECTIVE, "read_file", "write_file")):
        found = explain(subject, name)
        assert not found.allowed
        assert (found.server, found.tool) == ("fs", "write_file")
        assert (found.decision.layer, found.decision.reason) == ("task", "task_denied")
        assert "write_*" in found.decision.rule


@pytest.mark.requirement("policy:explain")
def test_an_allowed_tool_and_a_namespace_of_its_own_are_explained():
    assert explain(EFFECTIVE, "mcp__fs__read_file").allowed
    for name in ("scm__gl__x", "scm.gl.x", "mcp.gitlab.x", "gitlab/x"):
        found = explain(EFFECTIVE, name)
        assert (found.allowed, found.server, found.tool) == (True, "gitlab", "x")


@pytest.mark.requirement("policy:explain")
def test_of_several_requests_the_one_that_blocks_is_named():
    asked = (session(tool_allowlist=["read_*"]), session("fs", tool_denylist=["*_secret"]))
    effective = compose(WORLD, task("fs", "gitlab"), *asked)
    found = explain(effective, "fs/read_secret")
    assert found.decision.rule == "session layer 2 tool_denylist '*_secret'"
    assert explain(effective, "gitlab").decision.rule == "mcp.server_ids of session layer 2"
    assert found.filters is not None
    assert [str(layer) for layer in found.filters.layers[1:]] == [
        "session layer 1 (session) allows read_*",
        "session layer 2 (session) denies *_secret",
    ]


@pytest.mark.requirement("policy:explain")
def test_a_server_is_explained_by_its_id():
    assert explain(EFFECTIVE, "fs").allowed
    found = explain(EFFECTIVE, "off")
    assert (found.allowed, found.tool) == (False, None)
    assert (found.decision.layer, found.decision.reason) == ("platform", "server_disabled")


@pytest.mark.requirement("policy:explain")
@pytest.mark.parametrize("name", ["gone/x", "mcp__gone__x", "mcp.gone.x", "nonsense", ""])
def test_what_nobody_knows_is_explained_too(name: str):
    for subject in (EFFECTIVE, access(EFFECTIVE, "read_file")):
        found = explain(subject, name)
        assert not found.allowed
        assert found.decision.reason == "unknown_tool"


@pytest.mark.requirement("policy:explain")
def test_with_the_tools_at_hand_an_unlisted_tool_is_told_from_a_denied_one():
    table = access(EFFECTIVE, "read_file", "drop")
    assert explain(EFFECTIVE, "fs/read_other").allowed
    assert explain(table, "fs/read_other").decision.reason == "unknown_tool"
    assert explain(table, "fs/drop").decision.reason == "not_in_allowed_tools"
    assert explain(table, "fs/dorp").decision.reason == "unknown_tool"


@pytest.mark.requirement("policy:explain:printed")
def test_a_printed_explanation_says_verdict_layer_reason_rule_and_revision():
    text = str(explain(EFFECTIVE, "mcp__fs__write_file"))
    assert text.splitlines()[0] == "mcp__fs__write_file: denied"
    for part in ("task", "task_denied", MEANING["task_denied"], "write_*", "42"):
        assert part in text


@pytest.mark.requirement("policy:explain:printed")
def test_an_allowed_tool_says_whether_a_person_must_agree():
    table = access(EFFECTIVE, "read_file", "write_file")
    assert "read tool; no approval needed" in str(explain(table, "mcp__fs__read_file"))
    assert "write tool; approval required" in str(explain(table, "scm__gl__read_file"))


@pytest.mark.requirement("policy:reasons")
def test_every_reason_has_a_meaning_in_words():
    assert all(meaning and meaning == meaning.strip() for meaning in MEANING.values())
    assert len(set(MEANING.values())) == len(MEANING)


def test_the_tools_that_records_name_outright_are_found():
    world = registry(server("a", allowed_tools=["x", "y_*", "a/z", "?"]), server("b"))
    effective = compose(world, None, session("a", "b"))
    assert literal_tools(effective) == [("a", "x"), ("a", "z")]


def test_a_server_s_explanation_tells_what_anybody_may_know_of_its_record():
    records = (server("fs", display_name="Files", tags=["disk"]), server("other"))
    effective = compose(registry(*records), task("fs"))
    known = explain(effective, "fs").plain()["about"]
    assert known == {"transport": "stdio", "display_name": "Files", "tags": ("disk",)}
    assert "about" not in explain(effective, "other").plain()
    assert "about" not in explain(effective, "fs/read").plain()
