"""The laws of names, over ugly input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.name import model_name
from bascule.model.tool import ToolDescriptor
from bascule.policy.access import compile_access
from bascule.policy.compose import compose
from tests.policy.build import registry, server, session, tool

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
UGLY = (
    st.text(min_size=1, max_size=300)
    | st.text("ab_", min_size=1, max_size=8)
    | st.text("a_.-/", min_size=1, max_size=6)
    | st.sampled_from(["a" * 300, "_", "__", "a__b", "_a", "a_", "a.b", "é", "a/b", "mcp__fs__a"])
)
SERVER_IDS = st.from_regex(r"[a-z]([a-z0-9-]|_(?!_)){0,31}", fullmatch=True) | st.sampled_from(
    ["a", "a_", "a-", "a_b", "b", "b_"]
)
NAMESPACES = SERVER_IDS.map("mcp.{}".format) | st.sampled_from(
    ["mcp.a.b", "mcp.a", "a", "x.y.z", "mcp.a_.b", "mcp._a"]
)
PAIRS = st.tuples(NAMESPACES, UGLY)


@pytest.mark.requirement("names:legal")
@given(PAIRS)
def test_every_name_is_legal_and_at_most_64_characters(pair: tuple[str, str]):
    assert LEGAL.fullmatch(model_name(*pair))


@pytest.mark.requirement("names:collision-free")
@given(PAIRS, PAIRS)
def test_two_tools_never_share_a_name(one: tuple[str, str], two: tuple[str, str]):
    assert (model_name(*one) == model_name(*two)) == (one == two)


@pytest.mark.requirement("names:collision-free", "names:double-underscore")
@given(st.lists(st.tuples(SERVER_IDS, st.text("ab_", min_size=1, max_size=6)), max_size=30))
def test_joints_of_underscores_never_make_two_tools_meet(pairs: list[tuple[str, str]]):
    names = {model_name(f"mcp.{server_id}", name) for server_id, name in pairs}
    assert len(names) == len(set(pairs))


@pytest.mark.requirement("names:pure")
@given(SERVER_IDS, UGLY, st.lists(st.tuples(SERVER_IDS, UGLY), max_size=6))
def test_a_name_is_a_function_of_server_and_tool_alone(
    server_id: str, name: str, others: list[tuple[str, str]]
):
    alone = offered({server_id: [name]})[server_id][0].model_name
    world: dict[str, list[str]] = {}
    for other, offer in [*others, (server_id, name)]:
        world.setdefault(other, []).append(offer)
    crowd = offered(world)[server_id]
    assert next(listed.model_name for listed in crowd if listed.name == name) == alone


def offered(world: dict[str, list[str]]) -> dict[str, list[ToolDescriptor]]:
    return {s: [tool(server(s), name) for name in sorted(set(names))] for s, names in world.items()}


@pytest.mark.requirement("names:route-back", "names:input:dotted", "names:input:slash")
@given(st.dictionaries(SERVER_IDS, st.lists(UGLY, min_size=1, max_size=4), min_size=1, max_size=4))
def test_every_name_leads_back_to_exactly_its_server_and_tool(world: dict[str, list[str]]):
    catalogue = offered(world)
    effective = compose(registry(*map(server, world)), None, session(*world))
    access = compile_access(effective, catalogue)
    assert len(access.tools) == sum(map(len, catalogue.values()))
    for listed in access.tools:
        grant = access.resolve(listed.model_name)
        assert grant is not None
        assert (grant.tool.server_id, grant.tool.name) == (listed.server_id, listed.name)
        for spelling in other_spellings(listed):
            found = access.resolve(spelling)
            meant = claims(catalogue, spelling)
            assert (found.tool if found else None) == (listed if len(meant) == 1 else None)


def other_spellings(listed: ToolDescriptor) -> tuple[str, str]:
    return f"mcp.{listed.server_id}.{listed.name}", f"{listed.server_id}/{listed.name}"


def claims(catalogue: dict[str, list[ToolDescriptor]], spelling: str) -> list[ToolDescriptor]:
    every = [listed for tools in catalogue.values() for listed in tools]
    return [listed for listed in every if spelling in other_spellings(listed)]


@pytest.mark.requirement("names:order")
@given(st.permutations(["b", "a", "c", "a.b", "A", "é"]), st.permutations(["x", "y"]))
def test_tools_come_in_the_same_order_whatever_the_order_of_the_list(
    names: list[str], servers: list[str]
):
    effective = compose(registry(*map(server, servers)), None, session("y", "x"))
    catalogue = {s: [tool(server(s), name) for name in names] for s in servers}
    order = [
        (listed.server_id, listed.name) for listed in compile_access(effective, catalogue).tools
    ]
    assert order == [(s, name) for s in ("y", "x") for name in sorted(names)]
