"""What a call gives: the tables of the specification, row by row, over real processes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from bascule.section import (
    McpConfigError,
    McpIntegrationSection,
    Session,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from bascule.testing import ScriptedServer, do, tool
from tests.section.section_servers import ISSUE, config, github, named, run, section_of

TOTAL: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "integer"}, "label": {"type": "string"}},
    "required": ["total"],
}
SERVER = ScriptedServer(
    behaviours={
        "echo": "echo",
        "blocks": do(
            "fixed",
            result={
                "content": [
                    {"type": "text", "text": "one"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                    {"type": "text", "text": "two"},
                ]
            },
        ),
        "structured": do("structured", value={"total": 3}),
        "typed": do("structured", value={"total": 3}),
        "mistyped": do("structured", value={"total": "three"}),
        "untyped": "echo",
        "error": do("error", text="the disk is full"),
        "rpc_error": do("rpc_error", code=-32000, message="the tool is broken"),
        "never": "never",
        "big": do("big", bytes=100_000),
        "progress": do("progress", count=5),
        "foreign": do("structured", value={"a": 1}),
    },
    tools=[
        *(tool(n) for n in ("echo", "blocks", "structured", "error", "rpc_error", "never", "big")),
        *(tool(n, outputSchema=TOTAL) for n in ("typed", "mistyped", "untyped")),
        tool("progress"),
        tool("issue", inputSchema=ISSUE),
        tool("no_schema_of_its_own", inputSchema={"type": "object"}, outputSchema={}),
        tool("long", description="word " * 100),
        tool("foreign", outputSchema={"properties": {"a": {"$ref": "https://a.example/b"}}}),
    ],
)


@pytest.fixture(scope="module")
def section() -> Iterator[McpIntegrationSection]:
    with section_of(config(SERVER, timeout=0.4)) as section:
        yield section


def last(section: McpIntegrationSection) -> ToolInvoked:
    event = section.session.events[-1]
    assert isinstance(event, ToolInvoked)
    return event


@pytest.mark.requirement("section:schema:name")
def test_name_becomes_the_name_with_the_prefix(section: McpIntegrationSection) -> None:
    assert named(section, "a_echo").name == "a_echo"
    assert named(section, "a_echo").mcp_server == "a"
    assert named(section, "a_echo").native_name == "echo"


@pytest.mark.requirement("section:schema:description")
def test_description_is_cut_to_200_characters(section: McpIntegrationSection) -> None:
    assert named(section, "a_long").description == ("word " * 100)[:200]
    assert named(section, "a_echo").description == "The echo tool."


def test_input_schema_becomes_the_params_dataclass(section: McpIntegrationSection) -> None:
    params = named(section, "a_issue").params_type
    assert params is not None
    assert params.__name__ == "AIssueParams"
    assert [field.name for field in dataclasses.fields(params)] == ["owner", "repo", "title"]


def test_output_schema_becomes_the_result_dataclass_or_a_dict(
    section: McpIntegrationSection,
) -> None:
    typed = named(section, "a_typed").result_type
    assert typed is not None
    assert typed.__name__ == "ATypedResult"
    assert named(section, "a_echo").result_type is dict
    assert named(section, "a_no_schema_of_its_own").result_type is dict


@pytest.mark.requirement("section:schema:output")
def test_an_output_schema_that_cannot_be_followed_costs_the_dataclass_only(
    section: McpIntegrationSection,
) -> None:
    foreign = named(section, "a_foreign")
    assert foreign.result_type is dict
    (loss,) = foreign.lossy
    assert loss == "output $: $ref 'https://a.example/b' leads outside the schema"
    result = run(section, "a_foreign")
    assert result.success
    assert result.value is not None
    assert result.value["structuredContent"] == {"a": 1}


def test_a_handler_has_the_annotations_of_its_tool(section: McpIntegrationSection) -> None:
    bridged = named(section, "a_typed")
    hints = get_type_hints(bridged.handler)
    assert hints["params"] is bridged.params_type
    assert hints["context"] is ToolContext
    assert hints["return"] == ToolResult[bridged.result_type]  # pyright: ignore[reportInvalidTypeArguments]
    assert list(inspect.signature(bridged.handler).parameters) == ["params", "context"]


@pytest.mark.requirement("section:handler:success")
def test_a_successful_call(section: McpIntegrationSection) -> None:
    params = named(section, "a_echo").params_type
    assert params is not None
    result = named(section, "a_echo").handler(params(text="hello"), context=section.context())
    assert (result.success, result.message, result.text) == (True, "Success", "hello")
    assert result.error is None


@pytest.mark.requirement("section:result:content")
def test_value_contains_the_content_array(section: McpIntegrationSection) -> None:
    result = run(section, "a_blocks")
    assert result.value is not None
    assert [block["type"] for block in result.value["content"]] == ["text", "image", "text"]
    assert result.value["content"][1]["data"] == "aGk="
    assert result.text == "one\n[image: image/png, 2 bytes]\ntwo"


def test_structured_content_stands_beside_the_content(section: McpIntegrationSection) -> None:
    result = run(section, "a_structured")
    assert result.value is not None
    assert result.value["structuredContent"] == {"total": 3}
    assert result.value["content"][0]["type"] == "text"


def test_with_an_output_schema_the_value_is_its_dataclass(section: McpIntegrationSection) -> None:
    result = run(section, "a_typed")
    assert result.success
    value: Any = result.value
    assert type(value) is named(section, "a_typed").result_type
    assert (value.total, value.label) == (3, None)
    assert result.content[0]["type"] == "text"


@pytest.mark.parametrize("name", ["a_mistyped", "a_untyped"])
def test_an_answer_that_does_not_fit_the_output_schema_fails_and_is_kept(
    section: McpIntegrationSection, name: str
) -> None:
    result = run(section, name)
    assert not result.success
    assert "output schema" in result.message
    assert result.value is not None
    assert result.value["content"]


@pytest.mark.requirement("section:result:is-error")
def test_is_error_means_no_success(section: McpIntegrationSection) -> None:
    result = run(section, "a_error")
    assert (result.success, result.message) == (False, "the disk is full")
    assert result.value is not None
    assert result.value["isError"] is True


@pytest.mark.requirement("section:result:rpc-error")
def test_an_rpc_error_gives_its_message(section: McpIntegrationSection) -> None:
    result = run(section, "a_rpc_error")
    assert (result.success, result.message) == (False, "the tool is broken")
    assert result.value is None


@pytest.mark.requirement("section:result:timeout")
def test_a_timeout_says_so(section: McpIntegrationSection) -> None:
    result = run(section, "a_never")
    assert not result.success
    assert result.value is None
    assert result.error is not None
    assert result.error.code == "mcp_timeout"
    assert result.message.startswith("timeout after 0.4 s: ")


@pytest.mark.requirement("section:handler:awaits-timeout")
@pytest.mark.parametrize("progress", [False, True])
def test_a_handler_waits_for_its_answer_as_long_as_its_own_timeout(tmp_path: Path, progress: bool):
    gate = tmp_path / "gate"
    server = ScriptedServer(behaviours={"wait": do("gate", path=str(gate))})
    with (
        section_of(config(server, timeout=0.2)) as short,
        section_of(config(server, timeout=25)) as long,
        ThreadPoolExecutor(1) as thread,
    ):
        patient = thread.submit(run, long, "a_wait")
        context = short.context(on_progress=print if progress else None)
        hasty = named(short, "a_wait").run({}, context=context)
        assert hasty.error is not None
        assert (hasty.success, hasty.error.code) == (False, "mcp_timeout")
        assert not patient.done()
        gate.touch()
        assert patient.result(timeout=20).success


def test_an_output_that_was_cut_is_a_success_that_says_so(
    section: McpIntegrationSection,
) -> None:
    result = run(section, "a_big")
    assert (result.success, result.error) == (True, None)
    assert result.truncated is not None
    assert result.truncated.error.code == "mcp_output_too_large"
    assert result.message.startswith("Success (the output was cut: ")
    assert result.text.startswith("xxx")
    assert result.text.endswith("of 100000 bytes shown]")


@pytest.mark.requirement("section:no-streaming")
def test_a_streamed_answer_is_one_result(section: McpIntegrationSection) -> None:
    heard: list[float] = []
    context = section.context(on_progress=lambda progress: heard.append(progress.progress))
    result = named(section, "a_progress").run({"text": "whole"}, context=context)
    assert result.text == "whole"
    assert heard == [1, 2, 3, 4, 5]


@pytest.mark.requirement("section:failure:tool-not-found")
def test_a_tool_that_is_gone_is_not_found(tmp_path: Path) -> None:
    tools = [tool("second")]
    server = ScriptedServer(
        behaviours={"first": do("change_tools", tools=tools), "second": "echo"},
        tools=[tool("first"), tool("second")],
    )
    with section_of(config(server)) as section:
        assert run(section, "a_first").success
        while (result := run(section, "a_first")).success:
            pass  # the list is fetched anew once the server has announced it
        assert (result.success, result.value) == (False, None)
        assert "no tool of that name" in result.message
        assert run(section, "a_second", {"text": "x"}).success


@pytest.mark.requirement("section:failure:schema-validation")
@pytest.mark.parametrize(
    "params",
    [{}, {"owner": "o", "repo": "r"}, {"owner": 1, "repo": "r", "title": "t"}, 7, "text"],
)
def test_params_that_do_not_fit_the_schema_never_leave(tmp_path: Path, params: Any) -> None:
    journal = tmp_path / "journal"
    server = github(create_issue=do("ledger", path=str(journal)))
    with section_of(config(server, "github")) as section:
        create = named(section, "github_create_issue")
        result = create.handler(params, context=section.context())
        assert not result.success
        assert result.error is not None
        assert result.error.code == "mcp_invalid_arguments"
        assert result.message.startswith("arguments")  # as the bridge itself would say it
        assert result.value is None
        assert last(section).result is result
    assert not journal.exists()


@pytest.mark.requirement("call:schema:defaults")
def test_a_required_property_with_a_default_need_not_be_given(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 3}},
        "required": ["q", "n"],
    }
    server = ScriptedServer(
        behaviours={"find": "echo"}, tools=[{"name": "find", "inputSchema": schema}]
    )
    with section_of(config(server)) as section:
        assert run(section, "a_find", {"q": "x"}).success
        assert not run(section, "a_find", {"n": 1}).success


def test_a_dataclass_whose_values_do_not_fit_is_refused_by_the_full_schema(
    section: McpIntegrationSection,
) -> None:
    issue = named(section, "a_issue")
    assert issue.params_type is not None
    for title in (7, object(), b"bytes"):
        params = issue.params_type(owner="o", repo="r", title=title)
        result = issue.handler(params, context=section.context())
        assert not result.success
        assert result.error is not None
        assert result.error.code == "mcp_invalid_arguments"


@pytest.mark.requirement("section:event:invoked", "section:event:source")
def test_every_call_publishes_an_event(section: McpIntegrationSection) -> None:
    heard: list[ToolInvoked] = []
    session = section.session
    end = session.bus.subscribe(ToolInvoked, heard.append)  # pyright: ignore[reportAttributeAccessIssue]
    echo = named(section, "a_echo")
    assert echo.params_type is not None
    params = echo.params_type(text="x")
    result = echo.handler(params, context=section.context())
    run(section, "a_error")
    end()
    success, failed = heard
    assert (success.tool_name, success.source, success.mcp_server) == ("a_echo", "mcp", "a")
    assert success.params is params
    assert success.result is result
    assert (failed.tool_name, failed.result.success) == ("a_error", False)
    assert session.events[-2:] == (success, failed)


@pytest.mark.requirement("section:failure:timeout-event")
def test_a_timeout_publishes_an_event_too(section: McpIntegrationSection) -> None:
    result = run(section, "a_never")
    event = last(section)
    assert (event.tool_name, event.mcp_server) == ("a_never", "a")
    assert event.result is result
    assert event.result.error is not None
    assert event.result.error.code == "mcp_timeout"


@pytest.mark.requirement("section:single-session")
def test_a_tool_refuses_the_context_of_another_session(section: McpIntegrationSection) -> None:
    stranger = ToolContext(Session())
    with pytest.raises(McpConfigError, match="another session"):
        named(section, "a_echo").run({"text": "x"}, context=stranger)
    assert stranger.session.events == ()
