"""The executor's configuration, in the specification's shape."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bascule import InvalidRecord
from bascule.executor import McpConfig, McpExecutor, McpServerConfig, Tls


@pytest.mark.requirement("executor:config", "executor:config:transports")
@pytest.mark.parametrize(
    ("given", "transport"),
    [
        ({"transport": "stdio", "command": "run", "args": ["a"], "env": {"K": "v"}}, "stdio"),
        ({"transport": "sse", "url": "https://h/sse"}, "http_sse_legacy"),
        (
            {"transport": "streamable-http", "url": "https://h/mcp", "headers": {"X-A": "b"}},
            "streamable_http",
        ),
        ({"command": "run"}, "stdio"),
        ({"url": "https://h/mcp"}, "streamable_http"),
    ],
)
def test_every_transport_of_the_specification_is_accepted(given: dict[str, Any], transport: str):
    (record,) = McpConfig.read({"servers": [{"name": "s", **given}]}).records()
    assert record.transport == transport
    assert record.allowed_tools == ("*",)
    if record.stdio is not None:
        assert record.stdio.command == "run"
        assert list(record.stdio.args) == given.get("args", [])
        assert dict(record.stdio.env) == given.get("env", {})
    if record.http is not None:
        assert record.http.url == given["url"]
        assert dict(record.http.headers) == given.get("headers", {})


def test_a_timeout_becomes_the_servers_budget():
    record = McpServerConfig(name="s", command="run", timeout=1.5).record()
    assert record.budgets.tool_timeout_ms == 1500


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "s"}, "servers[0].url: is needed with transport 'streamable-http'"),
        ({"name": "s", "transport": "stdio"}, "servers[0].command: is needed"),
        ({"name": "s", "command": "c", "url": "https://h"}, "servers[0].url: has no effect"),
        ({"name": "s", "url": "https://h", "env": {"A": "b"}}, "servers[0].env: has no effect"),
        ({"name": "Upper", "command": "c"}, "servers[0].name"),
        ({"name": "s", "url": "nonsense"}, "servers[0].url"),
    ],
)
def test_what_would_have_no_effect_or_is_missing_is_refused(given: dict[str, Any], problem: str):
    with pytest.raises(InvalidRecord) as refused:
        McpConfig.read({"servers": [given]}).records()
    assert any(line.startswith(problem) for line in refused.value.problems), refused.value


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"servers": [{"name": "s", "transport": "pigeon"}]}, "transport"),
        ({"servers": [{"name": "s", "comand": "c"}]}, "comand"),
        ({"servers": [{"command": "c"}]}, "name"),
        ({"servers": 5}, "servers"),
        ({"server": []}, "server"),
    ],
)
def test_a_configuration_that_cannot_be_read_says_where(plain: dict[str, Any], words: str):
    with pytest.raises(InvalidRecord, match=words):
        McpConfig.read(plain)


def test_all_broken_servers_are_reported_at_once():
    config = McpConfig(servers=(McpServerConfig(name="a"), McpServerConfig(name="b")))
    with pytest.raises(InvalidRecord) as refused:
        McpExecutor(config)
    assert len(refused.value.problems) == 2


def test_a_name_that_is_given_twice_is_refused():
    server = McpServerConfig(name="a", command="c")
    with pytest.raises(InvalidRecord, match="'a' is given twice"):
        McpExecutor([server, server])


def test_names_alone_need_a_bridge():
    with pytest.raises(InvalidRecord, match="need a bridge"):
        McpExecutor(["fs"])


def test_no_literal_value_is_in_the_words_of_a_configuration():
    config = McpServerConfig(
        name="s", url="https://h", headers={"Authorization": "Bearer hush"}, env={"K": "hush"}
    )
    assert "hush" not in repr(McpConfig(servers=(config,)))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"args": "-y pkg"}, "servers[0].args: must be a list, not a string"),
        ({"env": {"A": 1}}, "servers[0].env.A: must be a string, not a number"),
        ({"timeout": -1}, "servers[0].timeout: must be at least 1"),
    ],
)
def test_a_problem_is_told_in_the_words_of_the_configuration(fields: dict[str, Any], problem: str):
    given: dict[str, Any] = {"name": "fs", "command": "x", **fields}
    with pytest.raises(InvalidRecord) as refused:
        McpExecutor([McpServerConfig(**given)])
    assert refused.value.problems == (problem,)


def test_plain_values_are_read_by_the_reader_and_not_in_passing():
    plain: Any = [{"name": "fs", "command": "x"}]
    with pytest.raises(InvalidRecord, match=r"McpConfig\.read"):
        McpExecutor(plain)


@pytest.mark.requirement("executor:config:tls")
def test_certificates_of_an_http_server_are_part_of_its_configuration():
    tls = {"ca": "/ca.pem", "client_certificate": "/c.pem", "client_key": "/k.pem"}
    plain = {"servers": [{"name": "s", "url": "https://h/mcp", "tls": tls}]}
    [record] = McpConfig.read(plain).records()
    assert record.http is not None
    assert msgspec.to_builtins(record.http.tls) == tls
    [typed] = McpConfig(
        servers=(McpServerConfig(name="s", url="https://h", tls=Tls(ca="/a")),)
    ).records()
    assert typed.http is not None
    assert typed.http.tls is not None
    assert typed.http.tls.ca == "/a"


@pytest.mark.requirement("executor:config:tls")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"command": "x", "tls": {"ca": "/a"}}, "tls: has no effect"),
        ({"url": "https://h", "tls": {"client_key": "/a"}}, "tls: client_certificate and"),
        ({"url": "https://h", "tls": {"caa": "/a"}}, "caa"),
    ],
)
def test_certificates_that_cannot_work_are_refused(fields: dict[str, Any], problem: str):
    with pytest.raises(InvalidRecord, match=problem):
        McpConfig.read({"servers": [{"name": "s", **fields}]}).records()


@pytest.mark.requirement("executor:config")
def test_fields_may_be_spelled_as_the_specification_has_them():
    plain = {
        "Servers": [
            {
                "Name": "fs",
                "Transport": "stdio",
                "Command": "run",
                "Args": ["a"],
                "Env": {"Key": "V"},
            },
            {
                "Name": "web",
                "Transport": "streamable-http",
                "URL": "https://h",
                "Headers": {"X-A": "b"},
            },
        ]
    }
    local, remote = McpConfig.read(plain).records()
    assert local.stdio is not None
    assert (local.stdio.command, local.stdio.env) == ("run", {"Key": "V"})
    assert remote.http is not None
    assert (remote.http.url, remote.http.headers) == ("https://h", {"X-A": "b"})
