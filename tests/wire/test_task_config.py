"""The seeds' string maps: tasks and sessions as ``mcp.*`` keys."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import InvalidRecord
from bascule.model.session import SessionRequest
from bascule.model.task import Selection, TaskPolicy, TaskRecord
from bascule.wire.records import decode
from bascule.wire.task_config import (
    means_mcp,
    parse_session_params,
    parse_task_config,
    task_config,
)

SEED_TASK = {
    "mcp.enabled": "true",
    "mcp.default_server_ids": '["gitlab","fs"]',
    "mcp.allowed_server_ids": '["gitlab","fs","duckduckgo-search"]',
    "mcp.tool_allowlist": '["*"]',
    "mcp.tool_denylist": '["delete_*"]',
}
SEED_POLICY = TaskPolicy(
    enabled=True,
    default_server_ids=("gitlab", "fs"),
    allowed_server_ids=("gitlab", "fs", "duckduckgo-search"),
    tool_allowlist=("*",),
    tool_denylist=("delete_*",),
)


def task_problems(config: dict[str, Any], *, strict: bool = False) -> list[str]:
    with pytest.raises(InvalidRecord) as refused:
        parse_task_config(config, strict=strict)
    return list(refused.value.problems)


def session_problems(params: dict[str, Any], *, strict: bool = False) -> list[str]:
    with pytest.raises(InvalidRecord) as refused:
        parse_session_params(params, strict=strict)
    return list(refused.value.problems)


@pytest.mark.requirement(
    "task:seed-example",
    "task:config:string-map",
    "task:config:default-server-ids",
    "task:config:allowed-server-ids",
    "task:config:tool-lists",
    "task:config:enabled",
)
def test_the_task_of_the_seeds_appendix_is_read():
    assert parse_task_config(SEED_TASK, strict=True) == (SEED_POLICY, ())


@pytest.mark.requirement("task:typed", "task:forms-agree")
def test_the_string_map_and_the_typed_object_give_the_same_record():
    mapped, _ = decode(TaskRecord, {"task_id": "t", "config": SEED_TASK}, strict=True)
    typed, _ = decode(
        TaskRecord,
        {
            "task_id": "t",
            "mcp": {
                "enabled": True,
                "default_server_ids": ["gitlab", "fs"],
                "allowed_server_ids": ["gitlab", "fs", "duckduckgo-search"],
                "tool_allowlist": ["*"],
                "tool_denylist": ["delete_*"],
            },
        },
    )
    assert mapped == typed
    assert mapped.config == {}
    assert parse_task_config(task_config(typed.mcp))[0] == typed.mcp


def test_both_forms_at_once_are_refused():
    both = {"task_id": "t", "config": SEED_TASK, "mcp": {"enabled": True}}
    with pytest.raises(InvalidRecord, match="config: "):
        decode(TaskRecord, both)


@pytest.mark.requirement("task:config:foreign-keys")
def test_keys_of_others_are_left_alone():
    config = SEED_TASK | {"model": "small", "mcpx": "1", "deep": {"mcp.enabled": "no"}}
    assert parse_task_config(config, strict=True) == (SEED_POLICY, ())
    record, _ = decode(TaskRecord, {"task_id": "t", "config": config}, strict=True)
    assert record.config == {"model": "small", "mcpx": "1", "deep": {"mcp.enabled": "no"}}


@pytest.mark.requirement("task:config:enabled")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, True) for word in ("true", "TRUE", "1", "yes", "y", "on", " true ", True)),
        *((word, False) for word in ("false", "0", "no", "n", "off", False)),
    ],
)
def test_every_usual_word_for_on_and_off_is_read(text: object, value: bool):
    assert parse_task_config({"mcp.enabled": text})[0].enabled is value
    assert parse_session_params({"mcp.enabled": text})[0].enabled is value


@pytest.mark.requirement("task:config:malformed", "policy:session:bad-type")
@pytest.mark.parametrize("bad", ["maybe", "", "tru", 1, 0, [], '"true'])
def test_another_word_is_refused_rather_than_read_as_off(bad: object):
    (problem,) = task_problems({"mcp.enabled": bad})
    assert problem.startswith("mcp.enabled: ")
    (problem,) = session_problems({"mcp.enabled": bad})
    assert problem.startswith("mcp.enabled: ")


@pytest.mark.requirement("task:config:tool-lists")
@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('["a_*","b"]', ("a_*", "b")),
        (' [ "a_*" , "b" ] ', ("a_*", "b")),
        (["a_*", "b"], ("a_*", "b")),
        ("a_*,b", ("a_*", "b")),
        (" a_* , ,b, ", ("a_*", "b")),
        ("[]", ()),
        ("", ()),
        ([], ()),
    ],
)
def test_a_list_is_json_in_a_string_or_text_with_commas_or_a_list(
    given: object, read: tuple[str, ...]
):
    for key in ("tool_allowlist", "tool_denylist"):
        assert getattr(parse_task_config({f"mcp.{key}": given})[0], key) == read
        assert getattr(parse_session_params({f"mcp.{key}": given})[0], key) == read


@pytest.mark.requirement("task:config:malformed")
@pytest.mark.parametrize(
    "bad",
    [
        '["a"',
        '["a",]',
        '["a", 1]',
        "[null]",
        '[["a"]]',
        '[""]',
        {"a": 1},
        7,
        True,
        ["a", 7],
    ],
)
@pytest.mark.parametrize("key", ["mcp.tool_allowlist", "mcp.tool_denylist"])
def test_a_list_that_is_malformed_is_refused_by_its_key_and_once(key: str, bad: object):
    (problem,) = task_problems({key: bad})
    assert problem.startswith(key)
    (problem,) = session_problems({key: bad})
    assert problem.startswith(key)


@pytest.mark.requirement("task:config:malformed")
@pytest.mark.parametrize("bad", ['"delete_*"', '{"delete_*": 1}', '"a", "b"'])
def test_json_that_is_no_list_is_not_read_as_a_pattern(bad: str):
    """A veto that is quietly turned into a pattern nothing can match would be no veto."""
    (problem,) = task_problems({"mcp.tool_denylist": bad})
    assert problem.startswith("mcp.tool_denylist: ")


@pytest.mark.requirement("policy:session:bad-type", "record:patterns:bad")
@pytest.mark.parametrize("bad", ["*/x", "fs/", "/x", "x" * 300])
def test_a_pattern_that_means_nothing_is_refused_before_it_meets_policy(bad: str):
    for key in ("mcp.tool_allowlist", "mcp.tool_denylist"):
        assert session_problems({key: ["a", bad]})[0].startswith(f"{key}[1]: ")
        assert task_problems({key: ["a", bad]})[0].startswith(f"{key}[1]: ")
    (problem,) = task_problems({"mcp.profile_overrides": {"tool_denylist": [bad]}})
    assert problem.startswith("mcp.profile_overrides.tool_denylist[0]: ")


def test_a_bad_server_id_in_a_task_is_refused_with_its_place():
    (problem,) = task_problems({"mcp.default_server_ids": '["fs","Not One"]'})
    assert problem.startswith("mcp.default_server_ids[1]: ")


@pytest.mark.requirement("task:server-tags:key", "task:read-only:key")
def test_tags_and_read_only_are_keys_too():
    policy, _ = parse_task_config({"mcp.server_tags": '["scm","search"]', "mcp.read_only": "yes"})
    assert policy == TaskPolicy(server_tags=("scm", "search"), read_only=True)


def test_a_profile_and_its_overrides_are_read():
    config = {"mcp.profile": "code-review", "mcp.profile_overrides": '{"tool_denylist": ["x"]}'}
    policy, _ = parse_task_config(config, strict=True)
    assert policy.profile == "code-review"
    assert policy.profile_overrides == Selection(tool_denylist=("x",))
    assert parse_task_config({"mcp.profile": '"code-review"'})[0].profile == "code-review"


@pytest.mark.parametrize("bad", ["{", "[]", '"x"', '{"tool_denylist": 1}', "7"])
def test_overrides_that_are_malformed_are_refused_by_their_key(bad: str):
    (problem,) = task_problems({"mcp.profile_overrides": bad})
    assert problem.startswith("mcp.profile_overrides")


@pytest.mark.requirement("task:config:malformed")
def test_all_bad_values_are_named_at_once():
    config = {
        "mcp.enabled": "perhaps",
        "mcp.default_server_ids": "[",
        "mcp.tool_allowlist": "[1]",
        "mcp.read_only": 3,
    }
    assert [problem.partition(": ")[0] for problem in task_problems(config)] == [
        "mcp.enabled",
        "mcp.default_server_ids",
        "mcp.tool_allowlist[0]",
        "mcp.read_only",
    ]


@pytest.mark.requirement("task:absent-empty")
def test_absent_and_empty_lists_are_told_apart():
    assert parse_task_config({})[0].tool_allowlist is None
    assert parse_task_config({"mcp.tool_allowlist": "[]"})[0].tool_allowlist == ()
    assert parse_session_params({})[0].server_ids is None
    assert parse_session_params({"mcp.server_ids": []})[0].server_ids == ()
    kept = task_config(TaskPolicy(tool_allowlist=()))
    assert kept["mcp.tool_allowlist"] == "[]"
    assert "mcp.allowed_server_ids" not in kept


@pytest.mark.requirement("task:unknown-key")
def test_an_unknown_key_is_a_problem_that_names_the_nearest():
    said = ["mcp.enabeld: unknown field; did you mean 'mcp.enabled'?"]
    assert task_problems({"mcp.enabeld": "true"}) == said


@pytest.mark.requirement("task:max-tools")
@pytest.mark.parametrize("value", [7, "7", " 7 "])
def test_a_cap_on_tools_is_a_number_or_the_same_in_a_string(value: object):
    policy, _ = parse_task_config({"mcp.max_tools": value})
    assert policy.max_tools == 7
    assert task_config(policy)["mcp.max_tools"] == "7"
    assert (parse_task_config({})[0].max_tools, "mcp.max_tools" in task_config(TaskPolicy())) == (
        128,
        False,
    )


@pytest.mark.requirement("task:max-tools")
@pytest.mark.parametrize("bad", [0, -1, "0", "many", True, 1.5, "true", None, 10_001])
def test_a_cap_that_is_none_is_refused(bad: object):
    [problem] = task_problems({"mcp.max_tools": bad})
    assert problem.startswith("mcp.max_tools: ")


@pytest.mark.requirement("policy:seed-session")
def test_the_session_of_the_seeds_appendix_is_read():
    assert parse_session_params({"mcp.server_ids": ["gitlab"]}, strict=True) == (
        SessionRequest(server_ids=("gitlab",)),
        (),
    )
    assert parse_session_params({"mcp.server_ids": '["gitlab"]'}) == (
        SessionRequest(server_ids=("gitlab",)),
        (),
    )


@pytest.mark.parametrize(
    "key", ["mcp.task_tool_allowlist", "mcp.task_tool_denylist", "mcp.task_anything"]
)
def test_what_only_the_host_sets_is_refused_in_a_session(key: str):
    (problem,) = session_problems({key: ["*"], "mcp.enabled": True})
    assert problem.startswith(f"{key}: ")


@pytest.mark.parametrize("key", ["mcp.default_server_ids", "mcp.allowed_server_ids", "mcp.profile"])
def test_a_sessions_word_on_task_keys_is_refused(key: str):
    [problem] = session_problems({key: '["fs"]'})
    assert problem.startswith(f"{key}: ")


@pytest.mark.requirement("policy:session:bad-type")
@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("mcp.server_ids", 7),
        ("mcp.server_ids", {"fs": True}),
        ("mcp.server_ids", ["fs", ""]),
        ("mcp.server_ids", ["fs", None]),
        ("mcp.server_ids", [["fs"]]),
        ("mcp.read_only", "maybe"),
        ("mcp.tool_denylist", None),
    ],
)
def test_a_session_parameter_of_the_wrong_type_is_refused_by_its_key(key: str, bad: object):
    (problem,) = session_problems({key: bad})
    assert problem.startswith(key)


@pytest.mark.requirement("policy:session:bad-type")
def test_other_parameters_of_a_session_are_none_of_our_business():
    assert parse_session_params({"model": 7, "tool_choice": "none"}, strict=True) == (
        SessionRequest(),
        (),
    )


@pytest.mark.requirement("budgets:task")
def test_budgets_and_the_form_of_results_are_keys_too():
    config = {
        "mcp.max_iterations": "4",
        "mcp.max_total_tool_calls": 5,
        "mcp.max_tool_output_bytes": " 600 ",
        "mcp.tool_output": '"always_json"',
    }
    policy, warnings = parse_task_config(config)
    assert not warnings
    assert (policy.max_iterations, policy.max_total_tool_calls) == (4, 5)
    assert (policy.max_tool_output_bytes, policy.tool_output) == (600, "always_json")
    assert parse_task_config(task_config(policy))[0] == policy


@pytest.mark.parametrize(
    ("key", "bad"),
    [("max_iterations", "0"), ("max_iterations", "many"), ("max_iterations", "129"),
     ("max_total_tool_calls", "-1"), ("max_tool_output_bytes", "9" * 30), ("tool_output", "xml")],
)  # fmt: skip
def test_a_budget_that_cannot_be_meant_is_refused_by_its_key(key: str, bad: str):
    with pytest.raises(InvalidRecord, match=f"mcp.{key}: "):
        parse_task_config({f"mcp.{key}": bad})


@given(st.text() | st.text("mcpMCP.\u200b\uff4d\u00ad \t\x1f", max_size=8))
def test_a_key_means_mcp_by_what_a_reader_sees_of_it(key: str):
    normal = unicodedata.normalize("NFKC", key)
    seen = "".join(c for c in normal if unicodedata.category(c) != "Cf").strip().lower()
    assert means_mcp(key) == (seen == "mcp" or seen.startswith("mcp."))


def test_who_a_task_is_for_can_be_said_in_strings():
    keys = {
        "mcp.users": "open",
        "mcp.allowed_groups": "writers, readers",
        "mcp.user_from_request": "true",
    }
    policy, _ = parse_task_config(keys)
    assert (policy.users, policy.allowed_groups) == ("open", ("writers", "readers"))
    assert policy.user_from_request
    assert parse_task_config({"mcp.allowed_groups": "[]"})[0].allowed_groups == ()
    with pytest.raises(
        InvalidRecord, match=r"mcp\.users: 'everybody' is not one of: open, records"
    ):
        parse_task_config({"mcp.users": "everybody"})
