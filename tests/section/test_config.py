"""What a section is told about its servers: checked when it is made, never shown in full."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.server import SERVER_ID_PATTERN
from bascule.section import (
    McpConfigError,
    McpConnectionError,
    McpConnectionPool,
    McpCredentialWarning,
    McpError,
    McpIntegrationSection,
    McpServerConfig,
    Session,
    SseTransport,
    StdioTransport,
    StreamableHttpTransport,
)
from bascule.testing import ScriptedServer
from tests.section.section_servers import config, github, names, run, section_of

HTTP = StreamableHttpTransport(url="https://mcp.example.com/v1")


def odd(value: Any) -> Any:
    """Return a value that the type checker would not let by."""
    return value


@pytest.mark.requirement("section:config:name")
@pytest.mark.parametrize("name", ["a", "github", "my-server_2", "a__b", "a-_-", "x" * 32])
def test_a_name_of_the_right_form_is_taken(name: str) -> None:
    assert McpServerConfig(name=name, transport=HTTP).name == name


@pytest.mark.requirement("section:config:name")
@pytest.mark.parametrize("name", ["", "A", "2a", "_a", "a.b", "a b", "x" * 33, "a\n", "é"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letter"):
        McpServerConfig(name=name, transport=HTTP)


@pytest.mark.requirement("section:config:name")
@given(st.from_regex(r"[a-z][a-z0-9_-]{0,31}", fullmatch=True))
def test_every_name_of_the_right_form_has_an_id_for_the_bridge(name: str) -> None:
    server_id = McpServerConfig(name=name, transport=HTTP).server_id
    assert re.fullmatch(SERVER_ID_PATTERN, server_id)
    assert (server_id == name) == ("__" not in name)


@pytest.mark.requirement("section:config:name", "section:config:tool-names")
def test_servers_whose_names_have_two_underscores_are_told_apart() -> None:
    one = config(github(), "a__b", enabled_tools=("get_*",), timeout=5)
    with section_of(one, config(name="a___b"), config(name="a_b")) as section:
        assert section.connected
        assert names(section) == ["a__b_get_issue", "a___b_echo", "a_b_echo"]
        assert run(section, "a___b_echo", {"text": "x"}).success
        assert section.session.events[-1].mcp_server == "a___b"
        pool = section.context().resources.get(McpConnectionPool)
        assert pool is not None
        assert pool["a__b"].call("get_issue", {"text": "seven"}).text == "seven"
        assert "### a__b\n" in section.render()


def test_a_server_with_two_underscores_that_is_lost_goes_by_its_own_name() -> None:
    missing = McpServerConfig(name="a__b", transport=StdioTransport(command="/no/such/program"))
    with pytest.raises(McpConnectionError, match=r"^a__b: ") as error:
        section_of(missing).connect()
    assert error.value.server_name == "a__b"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"enabled_tools": "get_issue"}, "enabled_tools"),
        ({"disabled_tools": "get_issue"}, "disabled_tools"),
        ({"enabled_tools": [1]}, "enabled_tools"),
        ({"transport": "npx"}, "transport"),
        ({"transport": {"command": "npx"}}, "transport"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"env": {"A": 1}}, "env"),
        ({"env": None}, "env"),
        ({"name": None}, "name"),
        ({"tool_prefix": 1}, "tool_prefix"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_its_name(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(McpConfigError, match=rf"^{named} must be"):
        McpServerConfig(**odd({"name": "a", "transport": StdioTransport(command="x"), **fields}))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: StdioTransport(command=odd(Path("x"))), "command"),
        (lambda: StdioTransport(command="x", args=odd("-y server")), "args"),
        (lambda: StdioTransport(command="x", cwd=odd(Path("x"))), "cwd"),
        (lambda: SseTransport(url="http://a", headers=odd({"A": None})), "headers"),
        (lambda: StreamableHttpTransport(url=odd(None)), "url"),
    ],
)
def test_a_transport_refuses_a_value_of_the_wrong_kind(
    make: Callable[[], object], named: str
) -> None:
    with pytest.raises(McpConfigError, match=rf"^{named} must be"):
        make()


def test_lists_are_as_good_as_tuples() -> None:
    command, args = github().command
    transport = StdioTransport(command=command, args=odd(list(args)))
    listed = McpServerConfig("github", transport, enabled_tools=odd(["get_issue"]))
    with section_of(listed) as section:
        assert names(section) == ["github_get_issue"]


def test_servers_may_come_from_a_generator() -> None:
    servers: Any = (config(name=name) for name in ("a", "b"))
    with McpIntegrationSection(servers=servers, session=Session()) as section:
        pool = section.context().resources.get(McpConnectionPool)
        assert pool is not None
        assert list(pool) == ["a", "b"]


@pytest.mark.requirement("section:config:prefix", "section:config:tool-names")
def test_tools_are_named_after_the_server_or_after_the_prefix() -> None:
    with section_of(config(name="one"), config(name="two", tool_prefix="my")) as section:
        assert names(section) == ["one_echo", "my_echo"]
        assert run(section, "my_echo", {"text": "hello"}).text == "hello"


@pytest.mark.requirement("section:config:enabled-tools")
def test_all_tools_are_shown_unless_some_are_enabled() -> None:
    with section_of(config(github(), "github")) as section:
        assert len(section.tools()) == 4
    enabled = config(github(), "github", enabled_tools=("get_issue", "list_*"))
    with section_of(enabled) as section:
        assert names(section) == ["github_get_issue", "github_list_issues"]


@pytest.mark.requirement("section:config:disabled-tools")
def test_disabled_tools_are_taken_from_the_enabled_ones() -> None:
    filtered = config(
        github(),
        "github",
        enabled_tools=("create_issue", "delete_repo"),
        disabled_tools=("delete_repo",),
    )
    with section_of(filtered) as section:
        assert names(section) == ["github_create_issue"]
    with section_of(config(github(), "github", disabled_tools=("*_issue*",))) as section:
        assert names(section) == ["github_delete_repo"]


def test_filters_of_one_server_leave_the_others_alone() -> None:
    one = config(github(), "one", enabled_tools=("get_issue",))
    two = config(github(), "two", disabled_tools=("get_issue",))
    with section_of(one, two) as section:
        assert names(section) == [
            "one_get_issue",
            "two_create_issue",
            "two_delete_repo",
            "two_list_issues",
        ]


def test_a_tool_with_a_slash_in_its_name_can_be_filtered() -> None:
    server = ScriptedServer(behaviours={"repo/read": "echo", "repo/drop": "echo"})
    with section_of(config(server, enabled_tools=("repo/read",))) as section:
        (tool,) = section.tools()
        assert tool.run({"text": "x"}, context=section.context()).success


@pytest.mark.parametrize("nothing", [(), []])
def test_a_server_without_any_enabled_tool_is_not_started(nothing: Any, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    none = config(ScriptedServer(starts=starts), enabled_tools=nothing)
    with section_of(none) as section:
        assert section.connected
        assert section.tools() == ()
    assert not starts.exists()


def test_an_enabled_tool_that_does_not_exist_is_told() -> None:
    misspelt = config(github(), "github", enabled_tools=("create_isue", "get_issue"))
    with section_of(misspelt) as section:
        assert names(section) == ["github_get_issue"]
        assert any("'create_isue'" in warning for warning in section.warnings)


@pytest.mark.requirement("section:config:timeout")
def test_the_timeout_is_thirty_seconds_and_can_be_set() -> None:
    assert McpServerConfig(name="a", transport=HTTP).timeout == 30.0
    server = ScriptedServer(behaviours={"never": "never"})
    with section_of(config(server, timeout=0.2)) as section:
        assert not run(section, "a_never").success


@pytest.mark.parametrize("timeout", [0, -1, 3601, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(McpConfigError, match="timeout"):
        McpServerConfig(name="a", transport=HTTP, timeout=timeout)


@pytest.mark.requirement("section:config:env")
def test_env_reaches_the_process_letter_by_letter() -> None:
    env = {"PLAIN": "warn", "PRICE": "$5 $$ ${HOME}", "PLACE": "file:///tmp/x", "EMPTY": ""}
    with section_of(config(ScriptedServer(behaviours={"env": "env"}), env=env)) as section:
        value = run(section, "a_env").value
        assert value is not None
        seen = value["structuredContent"]["env"]
        assert {name: seen[name] for name in ("PLAIN", "EMPTY")} == {"PLAIN": "warn", "EMPTY": ""}
        assert (seen["PRICE"], seen["PLACE"]) == ("$5 $$ ${HOME}", "file:///tmp/x")


def test_env_for_a_remote_server_is_refused_since_nobody_would_read_it() -> None:
    with pytest.raises(McpConfigError, match="headers"):
        McpServerConfig(name="a", transport=HTTP, env={"TOKEN": "x"})


@pytest.mark.requirement("section:transport:stdio")
def test_a_process_gets_its_arguments_and_its_directory(tmp_path: Path) -> None:
    command, args = ScriptedServer(behaviours={"env": "env"}).command
    assert StdioTransport(command=command).args == ()
    there = StdioTransport(command=command, args=tuple(args), cwd=str(tmp_path))
    with section_of(McpServerConfig(name="a", transport=there)) as section:
        value = run(section, "a_env").value
        assert value is not None
        assert value["structuredContent"]["cwd"] == str(tmp_path)


def test_arguments_are_literal_too() -> None:
    program = "import sys; sys.argv[1:] != ['$HOME', '${X}', '$$', 'file:///x'] and sys.exit(3)"
    command, _ = ScriptedServer().command
    script = ScriptedServer(behaviours={"echo": "echo"}).command[1]
    serve = (
        f"import runpy; sys.argv = {script[2:]!r}; runpy.run_path(sys.argv[0], None, '__main__')"
    )
    body = f"{program}\n{serve}"
    args = ("-I", "-S", "-c", body, "$HOME", "${X}", "$$", "file:///x")
    with section_of(
        McpServerConfig(name="a", transport=StdioTransport(command=command, args=args))
    ) as section:
        assert run(section, "a_echo", {"text": "x"}).success


@pytest.mark.requirement("section:transport:http-get")
def test_the_method_get_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="every message by POST") as refusal:
        StreamableHttpTransport(url="https://mcp.example.com/v1", method="GET")
    assert isinstance(refusal.value, McpError)
    assert StreamableHttpTransport(url="https://x.example/mcp", method="POST").method == "POST"


@pytest.mark.parametrize(
    "transport",
    [
        StreamableHttpTransport(url="mcp.example.com"),
        SseTransport(url="ftp://mcp.example.com"),
        StreamableHttpTransport(url="https://x.example/mcp", headers={"bad name": "x"}),
        StdioTransport(command=""),
    ],
)
def test_a_transport_that_cannot_work_is_refused_when_the_section_is_made(transport: Any) -> None:
    with pytest.raises(McpConfigError, match="server 'a'"):
        section_of(McpServerConfig(name="a", transport=transport))


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(McpConfigError, match="given twice"):
        section_of(config(), config())


def test_an_empty_prefix_is_refused() -> None:
    with pytest.raises(McpConfigError, match="tool_prefix"):
        McpServerConfig(name="a", transport=HTTP, tool_prefix="")


def test_configurations_are_frozen() -> None:
    server = McpServerConfig(name="a", transport=HTTP)
    with pytest.raises(FrozenInstanceError):
        server.name = "b"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        HTTP.url = "x"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.requirement("section:credentials-hidden")
def test_no_representation_shows_a_value_of_env_headers_or_url() -> None:
    secret = "correct-horse-battery"
    shown = [
        repr(config(env={"GITHUB_TOKEN": secret})),
        repr(SseTransport(url=f"https://u:{secret}@h.example/x", headers={"X-Key": secret})),
        repr(
            StreamableHttpTransport(
                url=f"https://h.example/x?token={secret}",
                headers={"Authorization": f"Bearer {secret}"},
            )
        ),
        str(McpServerConfig(name="a", transport=SseTransport("https://x", {"A": secret}))),
    ]
    assert all(secret not in text for text in shown)
    assert "GITHUB_TOKEN" in shown[0]
    assert "h.example" in shown[1]
    assert "Authorization" in shown[2]


@pytest.mark.requirement("section:credentials-args")
@pytest.mark.parametrize(
    "args",
    [
        ("--token=abcdefgh1234",),
        ("--api-key", "abcdefgh1234"),
        ("ghp_" + "a1B2" * 9,),
        ("serve", "hunter2hunter2"),
    ],
)
def test_a_credential_in_the_arguments_is_reported_and_not_shown(args: tuple[str, ...]) -> None:
    position = len(args) - 1
    with pytest.warns(McpCredentialWarning, match=rf"args\[{position}\].*use env") as told:
        server = McpServerConfig(
            name="a",
            transport=StdioTransport(command="x", args=args),
            env={"PASSWORD": "hunter2hunter2"},
        )
    assert told[0].filename == __file__
    assert args[-1] not in str(told[0].message)
    assert args[-1] not in repr(server)


def test_ordinary_arguments_are_not_reported() -> None:
    args = ("-y", "@modelcontextprotocol/server-github", "--port", "8080", "--key-file", "/k.pem")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        McpServerConfig(name="a", transport=StdioTransport(command="npx", args=args))
    assert told == []
