"""The specification's examples, as written but for the import, the commands and the addresses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bascule import Bridge
from bascule.model.sandbox import Sandbox
from bascule.outbound.network_variables import OUTWARD
from bascule.section import (
    InProcessEventBus,
    IsolationConfig,
    McpConfigError,
    McpConnectionError,
    McpConnectionPool,
    McpError,
    McpIntegrationSection,
    McpSchemaError,
    McpServerConfig,
    McpTimeoutError,
    McpToolError,
    NetworkPolicy,
    PromptTemplate,
    SandboxConfig,
    Session,
    SseTransport,
    StdioTransport,
    StreamableHttpTransport,
    ToolContext,
    ToolResult,
)
from bascule.section.records import Vault, records_of
from bascule.testing import ScriptedHttpServer, ScriptedServer
from tests.children import children
from tests.section.section_servers import (
    beside,
    config,
    filesystem,
    github,
    named,
    names,
    run,
    section_of,
    stdio,
)


@pytest.mark.requirement("section:example:single")
def test_single_server() -> None:
    command, args = filesystem().command
    session = Session(bus=InProcessEventBus())

    mcp_section = McpIntegrationSection(
        servers=[
            McpServerConfig(
                name="filesystem",
                transport=StdioTransport(
                    command=command,
                    args=(*args, "/workspace"),
                ),
            ),
        ],
        session=session,
    )

    with mcp_section:
        # Tools available: filesystem_read_file, filesystem_write_file, etc.
        template = PromptTemplate[None](
            ns="demo",
            key="mcp",
            sections=[mcp_section],
        )
        rendered = template.render()
        assert [tool.name for tool in rendered.tools] == [
            "filesystem_read_file",
            "filesystem_write_file",
        ]
        assert "`filesystem_read_file` - Read contents of a file" in rendered.text
        result = rendered.tools[0].run({"text": "hello"}, context=template.context(session))
        assert result.text == "hello"


@pytest.mark.requirement("section:example:multiple")
def test_multiple_servers() -> None:
    command, args = ScriptedServer(behaviours={"env": "env"}).command
    session = Session(bus=InProcessEventBus())
    secrets = {**os.environ, "GITHUB_TOKEN": "of github 1", "BRAVE_API_KEY": "of brave 1"}

    mcp_section = McpIntegrationSection(
        servers=[
            McpServerConfig(
                name="github",
                transport=StdioTransport(
                    command=command,
                    args=tuple(args),
                ),
                env={"GITHUB_TOKEN": secrets["GITHUB_TOKEN"]},
            ),
            McpServerConfig(
                name="brave",
                transport=StdioTransport(
                    command=command,
                    args=tuple(args),
                ),
                env={"BRAVE_API_KEY": secrets["BRAVE_API_KEY"]},
            ),
        ],
        session=session,
    )
    with mcp_section:
        assert names(mcp_section) == ["github_env", "brave_env"]
        seen = {name: run(mcp_section, name).value for name in names(mcp_section)}
        held = {name: set(value["structuredContent"]["env"]) for name, value in seen.items()}  # pyright: ignore[reportOptionalSubscript]
        assert "GITHUB_TOKEN" in held["github_env"] - held["brave_env"]
        assert "BRAVE_API_KEY" in held["brave_env"] - held["github_env"]


@pytest.mark.requirement("section:example:filtering")
def test_tool_filtering() -> None:
    filtered = McpServerConfig(
        name="github",
        transport=stdio(github()),
        enabled_tools=("create_issue", "list_issues", "get_issue"),  # Only these
        disabled_tools=("delete_repo",),  # Never this one
    )
    with section_of(filtered) as section:
        assert names(section) == ["github_create_issue", "github_get_issue", "github_list_issues"]


@pytest.mark.requirement("section:example:http", "section:transport:http")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_http_transport(era: Any) -> None:
    api_key = "a$key-1234567890"
    async with ScriptedHttpServer(server=ScriptedServer(era=era)) as http:
        remote = McpServerConfig(
            name="remote",
            transport=StreamableHttpTransport(
                url=http.url,
                headers={"Authorization": f"Bearer {api_key}"},
            ),
            timeout=60.0,
        )
        async with section_of(remote) as section:
            result = await beside(run, section, "remote_echo", {"text": "over http"})
            assert result.text == "over http"
            assert {seen.headers["Authorization"] for seen in http.requests} == {
                f"Bearer {api_key}"
            }


@pytest.mark.requirement("section:transport:sse")
async def test_sse_transport() -> None:
    server = ScriptedServer(era="legacy", version="2024-11-05")
    async with ScriptedHttpServer(server=server, dialects=("sse",)) as http:
        transport = SseTransport(url=http.url, headers={"X-Team": "bridges"})
        async with section_of(McpServerConfig(name="old", transport=transport)) as section:
            result = await beside(run, section, "old_echo", {"text": "over sse"})
            assert result.text == "over sse"
            assert {seen.headers["X-Team"] for seen in http.requests} == {"bridges"}


async def test_a_remote_server_that_comes_back_is_used_again() -> None:
    async with ScriptedHttpServer(server=ScriptedServer(era="legacy")) as http:
        remote = McpServerConfig(
            name="remote", transport=StreamableHttpTransport(url=http.url), timeout=10
        )
        async with section_of(remote) as section:
            assert (await beside(run, section, "remote_echo", {"text": "x"})).success
            await http.restart()
            assert (await beside(run, section, "remote_echo", {"text": "x"})).success


async def test_a_remote_server_that_stays_away_is_lost() -> None:
    async with ScriptedHttpServer() as http:
        remote = McpServerConfig(
            name="remote", transport=StreamableHttpTransport(url=http.url), timeout=10
        )
        async with section_of(remote) as section:
            await http.stop()
            with pytest.raises(McpConnectionError, match="'remote' is lost"):
                await beside(run, section, "remote_echo", {"text": "x"})
            assert section.state == "disconnected"


@pytest.mark.requirement("section:isolation:home")
def test_the_process_has_a_home_of_its_own() -> None:
    server = ScriptedServer(behaviours={"env": "env"})
    with section_of(config(server), isolation=IsolationConfig()) as section:
        value = run(section, "a_env").value
        assert value is not None
        env = value["structuredContent"]["env"]
        assert Path(env["HOME"]).is_dir()
        assert env["HOME"] != os.environ.get("HOME")
        given = {name for name in env if not name.startswith("BASCULE_")}
        assert given <= {"HOME", "TMPDIR", "PATH", "LANG", "LC_ALL", *OUTWARD}
    assert not Path(env["HOME"]).exists()


HOSTS = NetworkPolicy.with_domains("api.github.com", "example.org:8443")


@pytest.mark.requirement("section:isolation:sandbox")
@pytest.mark.parametrize(
    ("isolation", "sandbox"),
    [
        (IsolationConfig(), Sandbox(level="limits")),
        (IsolationConfig(sandbox=SandboxConfig()), Sandbox(required=True)),
        (
            IsolationConfig(network_policy=NetworkPolicy.no_network()),
            Sandbox(required=True, network="none"),
        ),
        (
            IsolationConfig(network_policy=HOSTS, sandbox=SandboxConfig()),
            Sandbox(required=True, network="egress", hosts=("api.github.com", "example.org:8443")),
        ),
    ],
    ids=["nothing", "sandbox", "no network", "hosts"],
)
def test_an_isolation_becomes_the_sandbox_of_what_is_started_here(
    isolation: IsolationConfig, sandbox: Sandbox
) -> None:
    remote = McpServerConfig("far", StreamableHttpTransport(url="https://example.org/mcp"))
    vault = Vault()
    local, far = records_of([config(), remote], vault, isolation.sandbox_of_record())
    assert (local.sandbox, far.sandbox) == (sandbox, None)


@pytest.mark.requirement("section:isolation:refused")
@pytest.mark.parametrize(
    ("isolation", "message"),
    [
        (
            IsolationConfig(network_policy=HOSTS, sandbox=SandboxConfig(enabled=False)),
            "network_policy needs a sandbox",
        ),
        (
            IsolationConfig(network_policy=NetworkPolicy.with_domains("https://github.com")),
            r"sandbox\.hosts\[0\]",
        ),
    ],
    ids=["contradiction", "host"],
)
def test_an_isolation_that_cannot_be_is_refused(isolation: IsolationConfig, message: str) -> None:
    with pytest.raises(McpConfigError, match=message):
        section_of(config(), isolation=isolation)


@pytest.mark.requirement("section:isolation:refused")
async def test_an_isolation_is_refused_where_the_records_are_a_given_bridges() -> None:
    async with Bridge.open([]) as bridge:
        with pytest.raises(McpConfigError, match="records of its own"):
            section_of(config(), isolation=IsolationConfig(sandbox=SandboxConfig()), bridge=bridge)


def test_a_sandbox_that_is_off_is_no_matter() -> None:
    isolation = IsolationConfig(sandbox=SandboxConfig(enabled=False))
    with section_of(config(), isolation=isolation) as section:
        assert section.connected


def test_environment_variables_from_a_store() -> None:
    secrets = {"github_token": "ghs-of-the-store-1"}
    server = McpServerConfig(
        name="github",
        transport=stdio(ScriptedServer(behaviours={"env": "env"})),
        env={
            "GITHUB_TOKEN": secrets.get("github_token", ""),  # From secure store
        },
    )
    with section_of(server) as section:
        value = run(section, "github_env").value
        assert value is not None
        assert value["structuredContent"]["env"]["GITHUB_TOKEN"].startswith("[masked")


@pytest.mark.requirement("section:lazy")
def test_lazy_connection() -> None:
    before = children()
    section = McpIntegrationSection(servers=[config()], session=Session())
    # No connections yet
    assert children() == before

    section.connect()  # Establishes all connections
    tools = section.tools()  # Now available
    assert len(tools) == 1

    section.disconnect()  # Closes all connections
    assert children() <= before


@pytest.mark.requirement("section:connect-on-init")
def test_eager_connection() -> None:
    section = McpIntegrationSection(
        servers=[config()],
        session=Session(),
        connect_on_init=True,  # Connects immediately
    )
    assert section.connected
    section.disconnect()


@pytest.mark.requirement("section:idempotent-connect", "section:context-manager")
def test_context_manager() -> None:
    with McpIntegrationSection(servers=[config()], session=Session()) as section:
        section.connect()
        assert run(section, "a_echo", {"text": "used"}).text == "used"
    # Automatically disconnected
    assert section.state == "disconnected"


def test_resource_registry() -> None:
    @dataclass(frozen=True)
    class Params:
        number: str

    def handler(params: Params, *, context: ToolContext) -> ToolResult[str]:
        # Access MCP connection pool
        mcp_pool = context.resources.get(McpConnectionPool)
        if mcp_pool:
            github = mcp_pool.get("github")
            assert github is not None
            return ToolResult("Success", github.call("get_issue", {"text": params.number}).text)
        return ToolResult("no pool", None, success=False)

    with section_of(config(github(), "github")) as section:
        assert handler(Params("seven"), context=section.context()).value == "seven"
        assert not handler(Params("seven"), context=ToolContext(section.session)).success


@pytest.mark.requirement("section:error:tree")
def test_every_exception_is_an_mcp_error() -> None:
    kinds = (McpConnectionError, McpToolError, McpTimeoutError, McpSchemaError, McpConfigError)
    assert all(issubclass(kind, McpError) for kind in kinds)


def test_the_generated_dataclass_of_the_example() -> None:
    with section_of(config(github(), "github")) as section:
        create = named(section, "github_create_issue")
        assert create.params_type is not None
        assert create.params_type.__name__ == "GithubCreateIssueParams"
        fields: Mapping[str, Any] = create.params_type.__dataclass_fields__
        assert list(fields) == ["owner", "repo", "title"]
        params = create.params_type(owner="o", repo="r", title="t")
        assert create.handler(params, context=section.context()).success
