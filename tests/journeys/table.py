"""The ways people go with Bascule, from beginning to end, and how far each is built.

A journey's test types what the pages and the program itself print, into a real shell, at real
processes, and reads what a person sees. A step that is not built yet is listed here with what is
missing; whoever builds it makes the journey longer. ``test_table.py`` holds this list together
with the tests: a step that names a test must be shown by one of that name.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Sentence = Annotated[str, Meta(min_length=1)]


class Journey(Struct, frozen=True, kw_only=True):
    """One journey: who goes it, which tests show its steps, and what is missing."""

    number: int
    who: Sentence
    #: Steps that are built, each with the test that shows it: ``file::test``.
    built: dict[str, str] = {}
    missing: tuple[Sentence, ...] = ()


_EVALUATOR = "test_evaluator.py::test_five_minutes_from_the_first_start_to_the_second"
_FIRST_RUN = "../browser/test_first_run.py::test_from_one_command_to_the_first_approval"
_DEVELOPER = "test_agent_developer.py::test_"
_AGENT = f"{_DEVELOPER}the_agent_of_the_page_has_four_tools_and_is_told_why_one_is_denied"
_APPROVER = f"{_DEVELOPER}a_function_of_their_own_approves_and_a_budget_ends_it"
_SCRIPTED = f"{_DEVELOPER}a_scripted_server_takes_the_place_of_a_real_one_in_their_test"
_APP = "test_openai_app.py::test_an_app_changes_a_base_url_and_a_key_and_its_backend_fails"
_OFFICER = "test_security_officer.py::test_"
_DENIAL = f"{_OFFICER}a_rule_denies_and_the_denial_is_verified_elsewhere"
_ROTATION = f"{_OFFICER}a_secret_is_rotated_and_no_call_fails"
_OPERATOR = f"{_OFFICER}an_operators_token_cannot_give_itself_more"
_ASKED = f"{_OFFICER}a_rule_asks_with_the_exact_arguments_and_nobody_switches_it_off"
_ON_CALL = "test_on_call_engineer.py::test_"
_FULL_DISK = f"{_ON_CALL}a_full_disk_is_named_everywhere_and_calls_go_on_when_there_is_room"
_LEAK = f"{_ON_CALL}a_leaked_token_is_traced_and_revoked"
_LEAD = "test_team_lead.py::test_three_people_in_one_task_and_one_of_them_leaves"
_OWN_CHOICE = "test_team_lead.py::test_each_switches_some_off_and_nobody_gets_more"
_AUTHOR = "test_wasm_author.py::test_from_a_page_of_c_to_a_task_of_the_server"
_DESKTOP = "test_desktop_user.py::test_a_week_with_an_mcp_json"

JOURNEYS = (
    Journey(
        number=1,
        who="the evaluator, five minutes",
        built={
            "starts it, and types every command that is printed": _EVALUATOR,
            "sees the demo's tools, and lets the stand-in model call one": _EVALUATOR,
            "meets a call that a person has to approve": _EVALUATOR,
            "approves it in a second terminal, with the command that is printed": _EVALUATOR,
            "sees that call's life in the audit": _EVALUATOR,
            "adds a server of their own, with the commands that are printed": _EVALUATOR,
            "types `make up` in a clone, with Python and make and nothing else": _FIRST_RUN,
            "opens the one link of `make up`, and does all of it in the browser": _FIRST_RUN,
            "Ctrl-C leaves nothing behind, and the second start has everything": _EVALUATOR,
        },
    ),
    Journey(
        number=2,
        who="the agent developer, fifteen minutes",
        built={
            "gives an OpenAI agent four tools of two servers in under 20 lines": _AGENT,
            "sees a denial explained": _AGENT,
            "starts it twice": _AGENT,
            "adds a budget, and an approval by a function of their own": _APPROVER,
            "puts it into a test with bascule.testing": _SCRIPTED,
        },
        missing=(
            "an install into an empty environment: the package is not published",
            "servers that uvx fetches; see tests/flow/test_real_servers.py",
        ),
    ),
    Journey(
        number=3,
        who="the desktop user with an mcp.json",
        built={
            "imports several servers, one of which never answers": _DESKTOP,
            "allows only what reads, with the commands that are printed": _DESKTOP,
            "connects their own MCP client, with the address and token that are printed": _DESKTOP,
            "asks for something that is denied, and finds out why in one command": _DESKTOP,
            "allows exactly that, and the client hears of it and goes on": _DESKTOP,
            "imports the file again and loses nothing": _DESKTOP,
        },
        missing=("the real servers through uvx and npx; see tests/flow/test_real_servers.py",),
    ),
    Journey(
        number=4,
        who="the team lead",
        built={
            "gives three people one task with different integrations and tools": _OWN_CHOICE,
            "each switches some off with their own token, and none of them gets more": _OWN_CHOICE,
            "sees in each one's MCP client exactly what they may use": _OWN_CHOICE,
            "sees that nobody else gets in": _LEAD,
            "somebody leaves and is removed, and nobody has more than before": _LEAD,
            'asks "who can delete, and why?" and gets one answer': _LEAD,
        },
        missing=("pages for it",),
    ),
    Journey(
        number=5,
        who="the security officer",
        built={
            "starts from nothing allowed, and is told how a server gets its secret": _DENIAL,
            "writes a rule that denies what is written outside a folder": _DENIAL,
            "sees the denial in the audit, and exports it": _DENIAL,
            "verifies it elsewhere, with a key and anchors of their own": _DENIAL,
            "rotates a secret without a failed call": _ROTATION,
            "writes a rule that asks, is asked with the exact arguments, and denies": _ASKED,
            "sees that denial in the audit, with who decided": _ASKED,
            "tries to switch the rule off with an operator's token, and cannot": _ASKED,
            "tries to give themselves more with an operator's token, and cannot": _OPERATOR,
        },
        missing=("pages for it",),
    ),
    Journey(
        number=6,
        who="the platform engineer",
        missing=("backup and restore", "PostgreSQL, replicas and nodes of their own"),
    ),
    Journey(
        number=7,
        who="the app behind an OpenAI client",
        built={
            "changes a base URL and a key; tools work, streamed or not": _APP,
            "turns tools off, and the request passes without them": _APP,
            "the backend fails, is slow, returns nonsense: the error names it": _APP,
            "misspells a model, uses a path that is not served or a wrong key": _APP,
            "its operator finds the failure in the log": _APP,
        },
        missing=("byte for byte the same with tools off; see tests/doors/chat/test_passing.py",),
    ),
    Journey(
        number=8,
        who="the WASM author",
        built={
            "runs the first guest of the page with the command that stands there": _AUTHOR,
            "calls a model that calls a tool of the task, and one of the program": _AUTHOR,
            "meets a refusal as an error number": _AUTHOR,
            "reads the log while the guest runs": _AUTHOR,
            "lets a task of the server name the module, and runs that": _AUTHOR,
            "has the server run it, and reads what it says as it comes": _AUTHOR,
        },
    ),
    Journey(
        number=9,
        who="the on-call engineer at three in the morning",
        built={
            "the disk is full: /readyz, metrics, doctor, the log and the refused call say so": (
                _FULL_DISK
            ),
            "calls go on when there is room again": _FULL_DISK,
            "a token leaked: finds what it did, and revokes it": _LEAK,
        },
        missing=(
            "pages",
            "a server that is slow, dies or floods; see tests/flow/test_neighbours.py",
        ),
    ),
    Journey(
        number=10,
        who="the newcomer to the code",
        missing=("one walk; the gate's own tests are in tests/checks",),
    ),
)
