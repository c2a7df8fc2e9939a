"""What a file of agents may say, what it means, and how mistakes in it are told."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from bascule.errors import InvalidRecord
from bascule.manager import AgentsConfig, McpServerConfig, ToolFilter, read_agents, resolved
from bascule.manager.config import read_server
from bascule.manager.file import AgentsFile
from bascule.manager.record import MAX_OUTPUT_BYTES, check_servers, record_of

TIME = '{name = "time", transport = "stdio", command = "uvx"}'


def read(text: str, **options: Any) -> AgentsConfig:
    return read_agents(tomllib.loads(text), **options)


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidRecord) as caught:
        AgentsFile("agents.toml").parse(text.encode())
    return list(caught.value.problems)


def names(configs: tuple[McpServerConfig, ...]) -> list[str]:
    return [config.name for config in configs]


@pytest.mark.requirement(
    "manager:config:defaults", "manager:config:agents", "manager:config:append"
)
def test_an_agent_has_the_defaults_and_then_its_own():
    config = read(
        """
        [[defaults.mcp]]
        name = "shared"
        transport = "stdio"
        command = "one"

        [[agents]]
        id = "first"
        [[agents.mcp]]
        name = "own"
        transport = "http"
        url = "https://mcp.example.com/mcp"

        [[agents]]
        id = "second"
        """
    )
    assert names(config.servers("first")) == ["shared", "own"]
    assert names(config.servers("second")) == ["shared"]
    assert config.origin("first", "own") == "agent"
    assert config.origin("first", "shared") == "defaults"


@pytest.mark.requirement("manager:config:override")
def test_a_server_of_the_same_name_takes_the_defaults_place():
    config = read(
        """
        defaults.mcp = [
            {name = "a", transport = "stdio", command = "default-a"},
            {name = "b", transport = "stdio", command = "default-b"},
            {name = "c", transport = "stdio", command = "default-c"},
        ]
        agents = [{id = "main", mcp = [
            {name = "d", transport = "stdio", command = "own-d"},
            {name = "b", transport = "stdio", command = "own-b"},
        ]}]
        """
    )
    servers = config.servers("main")
    assert names(servers) == ["a", "b", "c", "d"]
    assert servers[1].command == "own-b"
    assert config.origin("main", "b") == "override"
    assert resolved(config.defaults, ()) == config.defaults


@pytest.mark.requirement("manager:config:empty")
@pytest.mark.parametrize("text", ["", "[defaults]\n", "[[agents]]\nid = 'main'\n"])
def test_a_file_without_servers_is_no_error(text: str):
    config = read(text)
    assert config.defaults == ()
    assert all(config.servers(agent_id) == () for agent_id in config.ids)


@pytest.mark.requirement("manager:config:enabled", "manager:config:stdio")
def test_a_stdio_entry_has_a_command_arguments_variables_and_a_folder():
    config = read_server(
        {
            "name": "files",
            "transport": "stdio",
            "command": "npx",
            "args": ["-y", "pkg"],
            "env": {"LOG": "warn"},
            "cwd": "/srv",
        }
    )
    assert config.enabled is True
    record, warnings = record_of(config)
    assert warnings == ()
    assert record.stdio is not None
    assert (record.stdio.command, record.stdio.args) == ("npx", ("-y", "pkg"))
    assert (record.stdio.env, record.stdio.cwd) == ({"LOG": "warn"}, "/srv")


@pytest.mark.requirement("manager:config:http")
@pytest.mark.parametrize(
    ("spelling", "transport"),
    [
        ("http", "streamable_http"),
        ("streamable-http", "streamable_http"),
        ("streamable_http", "streamable_http"),
        ("sse", "http_sse_legacy"),
    ],
)
def test_an_http_entry_has_a_url_and_headers_in_any_spelling(spelling: str, transport: str):
    headers = {"Authorization": "Bearer ${TOKEN}"}
    plain = {"name": "docs", "transport": spelling, "url": "https://x.example/mcp"}
    record, _ = record_of(read_server({**plain, "headers": headers}))
    assert record.transport == transport
    assert record.http is not None
    assert (record.http.url, record.http.headers) == ("https://x.example/mcp", headers)


def test_a_record_allows_everything_visibly_and_caps_results_at_the_seeds_size():
    record, _ = record_of(McpServerConfig(name="a", transport="stdio", command="x"))
    assert record.allowed_tools == ("*",)
    assert record.budgets.max_tool_output_bytes == MAX_OUTPUT_BYTES == 50_000
    assert record.hygiene.leaks == "mask"


def test_a_filter_is_the_records_own_allowlist():
    tools = ToolFilter(include=("read_*",), exclude=("read_all",))
    config = McpServerConfig(name="a", transport="stdio", command="x", tools=tools)
    assert record_of(config)[0].allowed_tools == ("read_*",)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("[[mcp]]\nname = 'x'", "mcp", "[[defaults.mcp]]"),
        ("[[mcp_servers]]\nname = 'x'", "mcp_servers", "[[agents.mcp]]"),
        ("[mcpServers.x]\ncommand = 'y'", "mcpServers", "[[defaults.mcp]]"),
        ("[[agent]]\nid = 'x'", "agent", "[[agents]]"),
        ("[defaults]\nmcp_servers = []", "defaults.mcp_servers", "[[defaults.mcp]]"),
        ("[[agents]]\nid = 'x'\nmcp_servers = []", "agents[0].mcp_servers", "[[agents.mcp]]"),
        ("[[agents]]\nid = 'x'\nmodel = 'm'", "agents[0].model", "unknown key"),
        ("[agents.main]\nmcp = []", "agents", "write [[agents]]"),
        ("[defaults.mcp]\nname = 'x'", "defaults.mcp", "write [[defaults.mcp]]"),
        ("[[agents]]\nmcp = []", "agents[0].id", "is required"),
        ("[[agents]]\nid = 'defaults'", "agents[0].id", "stands for all agents"),
        ("agents = [{id = 'a'}, {id = 'a'}]", "agents[1].id", "second agent"),
        (f"defaults.mcp = [{TIME}, {TIME}]", "defaults.mcp[1].name", "given twice"),
    ],
)
def test_a_misplaced_key_is_an_error_that_names_the_right_one(text: str, path: str, words: str):
    assert any(one.startswith(f"{path}: ") and words in one for one in problems(text))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"server_id": "x"}, "server_id: unknown key; write name"),
        ({"type": "stdio"}, "type: unknown key; write transport"),
        ({"allowed_tools": ["*"]}, "allowed_tools: unknown key; write tools.include"),
        ({"stdio": {"command": "x"}}, "stdio: unknown key; write command"),
        ({"comand": "x"}, "comand: unknown field; did you mean 'command'?"),
        ({"transport": "tcp"}, "transport: 'tcp' is not one of: http, sse, stdio"),
        ({"name": "Git Hub"}, "name: 'Git Hub' is not valid"),
        ({"name": ""}, "name: '' is not valid"),
        ({"url": "https://x.example"}, "url: is not used by transport 'stdio'"),
        ({"headers": {"A": "b"}}, "headers: is not used by transport 'stdio'"),
        ({"args": "one"}, "args: must be a list"),
        ({"env": {"A": 1}}, "env.A: must be a string"),
        ({"enabled": "yes"}, "enabled: must be true or false"),
        ({"timeout_ms": 0}, "timeout_ms: must be at least 1"),
        ({"tools": {"includes": []}}, "tools.includes: unknown field"),
        ({"env": {"A": "${"}}, "env.A: '${' without '}'"),
        ({"args": ["${1}"]}, "args[0]: "),
        ({"tools": {"include": ["*/b"]}}, "tools.include[0]: "),
        ({"tools": {"exclude": ["ok", "b/"]}}, "tools.exclude[1]: "),
    ],
)
def test_a_mistake_in_an_entry_is_told_with_its_path(fields: dict[str, Any], problem: str):
    base = {"name": "x", "transport": "stdio", "command": "y"}
    with pytest.raises(InvalidRecord) as caught:
        record_of(read_server({**base, **fields}))
    assert any(one.startswith(problem) for one in caught.value.problems)


@pytest.mark.parametrize(
    ("transport", "field"), [("stdio", "command"), ("http", "url"), ("sse", "url")]
)
def test_a_transport_needs_its_field(transport: str, field: str):
    with pytest.raises(InvalidRecord, match=f"{field}: is required by transport '{transport}'"):
        read_server({"name": "x", "transport": transport})


def test_a_transport_must_be_given():
    with pytest.raises(InvalidRecord, match="transport: is required"):
        read_server({"name": "x", "command": "y"})


def test_all_problems_of_a_file_are_told_at_once():
    found = problems(
        """
        [[mcp]]
        name = "x"
        [[defaults.mcp]]
        name = "UPPER"
        transport = "carrier pigeon"
        [[agents]]
        id = "main"
        [[agents.mcp]]
        name = "docs"
        transport = "http"
        [[agents.mcp]]
        name = "time"
        transport = "stdio"
        command = "uvx"
        bogus = 1
        """
    )
    paths = [problem.partition(": ")[0] for problem in found]
    assert paths == [
        "mcp",
        "defaults.mcp[0].name",
        "defaults.mcp[0].transport",
        "agents[0].mcp[0].url",
        "agents[0].mcp[1].bogus",
    ]


def test_references_are_checked_in_the_whole_file():
    found = problems(
        """
        defaults.mcp = [{ name = "a", transport = "http", url = "ftp://x" }]
        [[agents]]
        id = "main"
        mcp = [{ name = "b", transport = "stdio", command = "secret://x" }]
        """
    )
    assert [problem.partition(": ")[0] for problem in found] == [
        "defaults.mcp[0].url",
        "agents[0].mcp[0].command",
    ]


def test_a_broken_text_is_told_with_its_line():
    assert "line 2" in problems("ok = 1\nnot ok\n")[0]


def test_a_credential_on_a_command_line_is_a_warning():
    config = read(f'defaults.mcp = [{TIME[:-1]}, args = ["--key", "${{API_KEY}}"]}}]')
    [warning] = check_servers(config)
    assert warning.startswith("defaults.mcp[0].args[1]: ${API_KEY} looks like a credential")


def test_a_hosts_own_keys_are_left_alone_when_the_file_is_shared():
    text = "[llm]\nmodel = 'm'\n[[agents]]\nid = 'main'\nworkspace = '/x'\n"
    assert read(text, shared=True).ids == ("main",)
    with pytest.raises(InvalidRecord, match="mcp_servers: is not read"):
        read(f"{text}mcp_servers = []", shared=True)


def test_a_configuration_shows_no_values_when_it_is_printed():
    config = McpServerConfig(name="a", transport="stdio", command="x", env={"KEY": "hunter2"})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(AgentsConfig(defaults=(config,)))
