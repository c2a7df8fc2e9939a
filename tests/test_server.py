"""Servers from code: a keyword that means nothing is an error, and names what was meant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bascule import Bridge
from bascule.errors import InvalidRecord
from bascule.executor import McpConfig, McpServerConfig
from bascule.manager import McpServerConfig as AgentServer
from bascule.manager.config import ToolFilter
from bascule.model.call import CallLimits
from bascule.model.sandbox import SHORT_FORMS, Sandbox
from bascule.model.session import SessionLimits, SessionRequest
from bascule.model.task import TaskPolicy
from bascule.outbound.rules import NodeRules
from bascule.section.config import StdioTransport
from bascule.server import Server


@pytest.mark.requirement("record:sandbox:code")
def test_a_local_server_in_code_has_limits_unless_told_otherwise():
    assert Server.stdio("fs", "true").sandbox == Sandbox(level="limits")
    assert Server.stdio("fs", "true", sandbox="no-access").sandbox == SHORT_FORMS["no-access"]
    assert Server.stdio("fs", "true", sandbox={"read": ["/srv"]}).sandbox == Sandbox(read=("/srv",))
    whole = Sandbox(level="landlock", network="none", write=())
    assert Server.stdio("fs", "true", sandbox=whole).sandbox == whole
    assert Server.http("far", "https://example.org/mcp").sandbox is None
    with pytest.raises(InvalidRecord, match=r"sandbox\.network: False is not one of"):
        Server.stdio("fs", "true", sandbox={"network": False})


@pytest.mark.requirement("record:unknown-field:code")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"alow": ["read_*"]}, "'alow'; did you mean 'allow'?"),
        ({"isolation": {"network": False}}, "'isolation'"),
        ({"allowed_tool": ["x"]}, "'allowed_tool'; did you mean 'allowed_tools'?"),
        ({"budget": {}}, "'budget'; did you mean 'budgets'?"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_with_the_nearest_name(
    fields: dict[str, Any], said: str
):
    for make, where in ((Server.stdio, "stdio"), (Server.http, "http")):
        with pytest.raises(TypeError) as raised:
            make("fs", "https://example.org/mcp", **fields)
        assert str(raised.value).startswith(f"Server.{where}() got an unexpected keyword argument")
        assert said in str(raised.value)


@pytest.mark.requirement("record:unknown-field:code")
def test_an_unknown_field_inside_a_keyword_is_refused():
    with pytest.raises(InvalidRecord, match=r"budgets\.tool_timeot_ms: unknown field; did"):
        Server.stdio("fs", "x", budgets={"tool_timeot_ms": 5})


@pytest.mark.requirement("record:unknown-field:code")
@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (CallLimits, {"timeot": 1}),
        (SessionLimits, {"max_iteration": 1}),
        (TaskPolicy, {"tool_denylst": ("x",)}),
        (McpServerConfig, {"name": "a", "comand": "x"}),
        (AgentServer, {"name": "a", "comand": "x"}),
        (StdioTransport, {"command": "x", "arg": ()}),
    ],
)
def test_other_configurations_in_code_refuse_unknown_keywords(make: Any, fields: dict[str, Any]):
    with pytest.raises(TypeError):
        make(**fields)


@pytest.mark.requirement("record:unknown-field:code")
def test_an_executors_plain_configuration_refuses_unknown_fields():
    with pytest.raises(InvalidRecord, match="comand"):
        McpConfig.read({"servers": [{"name": "a", "comand": "x"}]})


@pytest.mark.requirement("record:unknown-field:code")
def test_a_connected_bridge_refuses_unknown_keywords_before_anything_is_asked():
    connect: Any = Bridge.connect
    with pytest.raises(TypeError, match="did you mean 'rules'"):
        connect("https://bascule.example", token="t", rule=None)
    bridge: Any = connect("https://bascule.example", token="t")
    with pytest.raises(TypeError, match="did you mean 'tool_denylist'"):
        bridge.session(tool_denylst=["write_*"])


@pytest.mark.requirement("record:patterns:model-name")
def test_a_session_in_code_refuses_patterns_that_are_models_names():
    bridge: Any = Bridge.open([Server.stdio("fs", "x")])
    for options in ({"tool_denylist": ["mcp__fs__write"]}, {"tool_allowlist": ["mcp.fs.read"]}):
        with pytest.raises(InvalidRecord, match="looks like a name that models use"):
            bridge.session(server_ids=["fs"], **options)
    with pytest.raises(InvalidRecord, match="looks like a name that models use"):
        bridge.session(task=TaskPolicy(enabled=True, tool_denylist=("mcp__fs__write",)))


@pytest.mark.requirement("record:lists:code")
@pytest.mark.parametrize(
    ("make", "fields", "said"),
    [
        (partial(Server.stdio, "fs", "x"), {"allow": "read_*"}, "allow=['read_*']"),
        (partial(Server.http, "fs", "https://example.org/mcp"), {"allow": "read_*"}, "Server.http"),
        (SessionRequest, {"tool_allowlist": "read_*"}, "tool_allowlist=['read_*']"),
        (TaskPolicy, {"tool_allowlist": "read_*"}, "TaskPolicy: tool_allowlist"),
        (TaskPolicy, {"allowed_server_ids": "fs"}, "allowed_server_ids=['fs']"),
        (NodeRules, {"variables": "API_*"}, "NodeRules: variables"),
        (NodeRules, {"executables": "uvx *"}, "executables=['uvx *']"),
        (ToolFilter, {"include": "read_*"}, "ToolFilter: include"),
    ],
)
def test_a_text_in_the_place_of_a_list_is_a_type_error(
    make: Callable[..., Any], fields: dict[str, Any], said: str
):
    with pytest.raises(TypeError) as raised:
        make(**fields)
    assert said in str(raised.value)


@pytest.mark.requirement("record:lists:code")
@pytest.mark.parametrize("name", ["server_ids", "tool_allowlist", "tool_denylist"])
async def test_a_session_refuses_a_text_in_the_place_of_a_list(name: str):
    options: dict[str, Any] = {name: "read_*"}
    async with Bridge.open([Server.stdio("fs", "x")]) as bridge:
        with pytest.raises(TypeError, match=f"session: {name} must be a list"):
            bridge.session(**options)
    far = Bridge.connect("http://127.0.0.1:1", token="bsc_unused")
    with pytest.raises(TypeError, match=f"session: {name} must be a list"):
        far.session(**options)
