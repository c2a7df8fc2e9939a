"""The section inside real weakincentives: its prompts, its sessions, its way of calling tools.

``weakincentives_run.py`` does it all on a Python that the framework runs on; each test here looks
at one piece of what it reports.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from bascule.section.weakincentives import OLDEST_PYTHON
from tests.section.weakincentives_home import HERE, ROOT, NoPython, environment

#: The first run makes the environment.
pytestmark = pytest.mark.timeout(240)

RENAMED = "desk_readfile__066yq7ezq33bp"
TOOLS = [
    "desk_count",
    "desk_create_issue",
    "desk_echo",
    "desk_fail",
    "desk_never",
    RENAMED,
    "desk_tree",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program reports."""
    try:
        python = environment()
    except NoPython as missing:
        pytest.skip(str(missing))
    except subprocess.CalledProcessError as failed:
        pytest.fail(f"{failed}\n{failed.stderr}")
    folder = tmp_path_factory.mktemp("weakincentives")
    done = subprocess.run(
        [python, "-W", "error", HERE / "weakincentives_run.py", folder],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_that_framework_on_a_python_it_runs_on(report: dict[str, Any]) -> None:
    assert report["weakincentives"].startswith("0.27.")
    assert tuple(report["python"]) >= OLDEST_PYTHON


def test_a_prompt_shows_the_tools_of_a_connected_section(report: dict[str, Any]) -> None:
    rendering = report["rendering"]
    assert rendering["is_section"]
    assert rendering["are_tools"]
    assert rendering["states"] == ["disconnected", "connected"]
    heading, _, body = rendering["text"].partition("\n\n")
    assert heading == "## 1. MCP Integrations (mcp.integrations)"
    assert "- `desk_create_issue` - The create_issue tool.\n" in body
    assert list(rendering["descriptions"]) == TOOLS


def test_a_template_cannot_be_made_before_the_section_is_connected(report: dict[str, Any]) -> None:
    assert "connect() first" in report["rendering"]["refused"]


def test_names_and_descriptions_are_made_to_fit(report: dict[str, Any]) -> None:
    described = report["rendering"]["descriptions"]
    assert described["desk_echo"] == "Echo ?"
    assert described[RENAMED] == "The tool desk_readFile of the server desk."


def test_a_model_is_given_the_fields_under_their_own_names(report: dict[str, Any]) -> None:
    spec = report["rendering"]["specs"]["desk_create_issue"]
    parameters = spec["parameters"]
    assert spec["name"] == "desk_create_issue"
    assert list(parameters["properties"]) == ["title", "class", "labels", "place"]
    assert parameters["properties"]["title"] == {"type": "string"}
    assert parameters["properties"]["place"]["properties"]["line"]["type"] == "integer"
    assert parameters["required"] == ["title"]
    assert report["rendering"]["params"]["desk_create_issue"] == "DeskCreateIssueParams"


def test_a_schema_that_refers_to_itself_takes_plain_arguments(report: dict[str, Any]) -> None:
    spec = report["rendering"]["specs"]["desk_tree"]
    assert spec["parameters"]["required"] == ["arguments"]
    assert report["calling"]["shown"]["tree"] == "a"
    assert report["calling"]["trees"] == [{"text": "a", "child": {"text": "b"}}]


def test_a_call_gives_a_result_of_the_framework(report: dict[str, Any]) -> None:
    calling = report["calling"]
    assert calling["are_results"]
    assert calling["value"] == "McpToolOutput"
    assert calling["structured"] == ["DeskCountResult", 1]
    assert calling["shown"]["echo"] == calling["shown"]["renamed"] == "hi"
    assert [name for name, good in calling["success"].items() if not good] == [
        "outside the schema",
        "failed",
    ]


def test_a_failure_says_what_went_wrong(report: dict[str, Any]) -> None:
    calling = report["calling"]
    assert calling["messages"]["failed"] == calling["shown"]["failed"] == "it went wrong"
    assert calling["is_error"]


def test_arguments_reach_the_server_as_its_schema_spells_them(report: dict[str, Any]) -> None:
    assert report["calling"]["issues"] == [
        {"title": "A", "class": "bug", "labels": ["x"], "place": {"line": 3}},
        {"title": "B"},
    ]


def test_what_a_dataclass_cannot_say_is_checked_all_the_same(report: dict[str, Any]) -> None:
    assert "minimum of 1" in report["calling"]["messages"]["outside the schema"]


def test_events_are_kept_by_the_frameworks_session_alone(report: dict[str, Any]) -> None:
    assert report["calling"]["kept"] == 0
    assert report["executing"]["in_session"] == 3


def test_its_adapters_can_call_the_tools(report: dict[str, Any]) -> None:
    answers = report["executing"]["answers"]
    assert answers["good"] == ["hi", False]
    assert answers["bad"] == ["it went wrong", True]
    assert answers["typed"] == ['{"n": 1}', False]


def test_what_the_framework_refuses_never_reaches_the_server(report: dict[str, Any]) -> None:
    answers = report["executing"]["answers"]
    assert answers["not a text"][1]
    assert answers["unknown key"][1]
    assert report["executing"]["sent"] == [{"text": "hi"}]


def test_every_call_is_an_event_of_the_framework(report: dict[str, Any]) -> None:
    assert report["executing"]["events"] == [
        ["desk_echo", {"text": "hi"}, "hi", True],
        ["desk_fail", {}, "it went wrong", False],
        ["desk_count", {}, '{"n": 1}', True],
    ]


def test_a_session_with_results_can_be_written_down_and_read_back(report: dict[str, Any]) -> None:
    assert [structured for _, structured in report["executing"]["restored"]] == [
        None,
        None,
        {"n": 1},
    ]
    assert report["executing"]["restored"][0][0] == [{"type": "text", "text": "hi"}]


def test_a_tool_of_the_host_finds_the_pool_among_the_resources(report: dict[str, Any]) -> None:
    beside = report["beside"]
    assert beside["tools"] == sorted([*TOOLS, "note"])
    assert beside["answers"][:2] == ["mcp_tool_error: it went wrong", "echo"]


def test_a_failed_call_restores_the_frameworks_session(report: dict[str, Any]) -> None:
    assert report["beside"]["notes"] == ["echo"]


def test_a_disabled_tool_is_neither_shown_nor_called(report: dict[str, Any]) -> None:
    assert not [name for name in report["beside"]["tools"] if "erase" in name]
    assert "erase" not in report["rendering"]["text"]
    assert report["beside"]["answers"][2].startswith("mcp_policy_denied: ")
    assert report["beside"]["erased"] == []


def test_policies_of_the_framework_hold_for_the_tools(report: dict[str, Any]) -> None:
    denied, _, created = report["ruled"]["texts"]
    assert denied == "Tool 'desk_create_issue' requires: desk_echo"
    assert created == "created"
    assert report["ruled"]["sent"] == [{"title": "B"}]


def test_a_late_answer_is_a_failure_and_an_event(report: dict[str, Any]) -> None:
    late = report["late"]
    assert late["is_error"]
    assert "in time" in late["text"]
    assert late["event"] == ["desk_never", False]


def test_an_override_takes_the_place_of_the_text(report: dict[str, Any]) -> None:
    assert report["overridden"]["path"] == ["mcp.integrations"]
    assert report["overridden"]["text"] == (
        "## 1. MCP Integrations (mcp.integrations)\n\nOnly 7 tools of desk, for $5."
    )


def test_clones_share_connections_until_the_last_is_cleaned_up(report: dict[str, Any]) -> None:
    cloned = report["cloned"]
    assert cloned["sessions"] == [True, True]
    assert cloned["after the clone's"] is False
    assert cloned["one left"] == ["connected", True]
    assert cloned["none left"] == ["disconnected", False]


def test_a_section_that_was_cleaned_up_can_connect_again(report: dict[str, Any]) -> None:
    assert report["cloned"]["again"] == ["connected", True]


def test_disconnect_ends_the_connections_of_all_clones(report: dict[str, Any]) -> None:
    assert report["cloned"]["disconnected"] == ["disconnected", False]


def test_it_works_in_async_code_too(report: dict[str, Any]) -> None:
    assert report["async"] == ["connected", "hi", "disconnected"]


def test_nothing_is_left_at_the_end(report: dict[str, Any]) -> None:
    assert report["left"] == {"processes": False, "threads": []}
