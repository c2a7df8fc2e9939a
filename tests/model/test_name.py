"""Model-facing names: readable where possible, legal always, never shared."""

from __future__ import annotations

import re

import pytest

from bascule.model.name import MAX_NAME_LENGTH, model_name
from bascule.wire.record_rules import namespace_conflicts
from tests.policy.build import server

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.requirement("names:form", "names:prefix-from-namespace")
def test_a_plain_name_is_prefix_server_and_tool():
    assert model_name("mcp.fs", "read_file") == "mcp__fs__read_file"
    assert model_name("mcp.fs", "readFile-2") == "mcp__fs__readFile-2"
    assert model_name("tools.files", "read") == "tools__files__read"
    assert server("fs").tool_namespace == "mcp.fs"


@pytest.mark.requirement("names:too-long")
def test_a_name_that_would_be_too_long_is_cut_and_ends_in_a_hash():
    fits = "x" * (MAX_NAME_LENGTH - len("mcp__fs__"))
    assert model_name("mcp.fs", fits) == "mcp__fs__" + fits
    cut = model_name("mcp.fs", fits + "y")
    assert len(cut) <= MAX_NAME_LENGTH
    assert cut.startswith("mcp__fs__xxx")
    assert cut != model_name("mcp.fs", fits + "z")


@pytest.mark.requirement("names:illegal-characters")
@pytest.mark.parametrize(
    "tool", ["a.b", "a/b", "naïve", "a b", "読む", "a\nb", "", "\ud800", "a:b"]
)
def test_a_name_with_illegal_characters_is_cleaned_and_ends_in_a_hash(tool: str):
    name = model_name("mcp.fs", tool)
    assert LEGAL.fullmatch(name)
    assert name.startswith("mcp__fs__")
    assert name != model_name("mcp.fs", re.sub("[^A-Za-z0-9_-]", "_", tool) or "_")


@pytest.mark.requirement("names:double-underscore")
def test_a_double_underscore_in_a_tool_never_reads_as_another_server():
    assert model_name("mcp.a", "b__c") != model_name("mcp.a.b", "c")
    assert model_name("mcp.a", "_b") != model_name("mcp.a_", "b")
    assert model_name("mcp.a_", "_b") != model_name("mcp.a", "__b")
    assert len({model_name("mcp.a", tool) for tool in ("b__c", "b_c", "b___c", "b__c_")}) == 4


@pytest.mark.requirement("names:collision-free")
def test_the_same_tool_on_two_servers_has_two_names():
    assert model_name("mcp.fs", "read") != model_name("mcp.gitlab", "read")


@pytest.mark.requirement("names:collision-free", "names:double-underscore")
def test_a_server_cannot_take_the_hashed_name_of_another_servers_tool():
    """The hash of a name is public, so a hostile server may offer it as a tool of its own."""
    victim = model_name("mcp.fs", "re.ad")
    namespace, _, tool = victim.rpartition("__")
    assert model_name(namespace.replace("__", "."), tool) != victim


@pytest.mark.requirement("record:tool-namespace:unique")
def test_one_namespace_belongs_to_one_server():
    first, second = server("a", tool_namespace="x.y"), server("b", tool_namespace="x.y")
    (conflict,) = namespace_conflicts([second, first])
    assert conflict.startswith("b.tool_namespace:")
    assert "'a'" in conflict
    assert namespace_conflicts([first, server("b", tool_namespace="x.z")]) == []


@pytest.mark.requirement("record:tool-namespace:unique")
def test_namespaces_whose_names_would_meet_conflict():
    assert namespace_conflicts([server("a"), server("b", tool_namespace="mcp.a")])
