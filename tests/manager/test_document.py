"""Files of agents edited by machine: nothing else in them changes, comments least of all."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.manager.document import drop_entry, set_entry

FILE = """\
# Our agents.

[defaults]
# for everybody

[[defaults.mcp]]
name = "files"  # the workspace
transport = "stdio"
command = "npx"
args = [
    "-y",
    "pkg", # pinned later
]

# errors and traces
[[defaults.mcp]]
name = "sentry"
transport = "http"
url = "https://mcp.example.com"
headers = { "Authorization" = "Bearer ${TOKEN}" }

# --- the agents ---

[[agents]]
id = "main"

[[agents.mcp]]
name = "postgres"
transport = "stdio"
command = "npx"

# the second one
[[agents]]
id = "other"
# it has nothing of its own

# the end
"""
NEW = {"name": "new", "transport": "stdio", "command": "x", "env": {"A": "b"}}


def comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if "#" in line]


def test_an_added_server_stands_with_its_agent_and_comments_stay_where_they_were():
    made = set_entry(FILE, "main", NEW)
    assert made == FILE.replace(
        "\n# the second one",
        '\n[[agents.mcp]]\nname = "new"\ntransport = "stdio"\ncommand = "x"\nenv = {A = "b"}\n'
        "\n# the second one",
    )


def test_an_agent_without_servers_gets_its_first():
    made = set_entry(FILE, "other", NEW)
    assert tomllib.loads(made)["agents"][1]["mcp"] == [NEW]
    assert comments(made) == comments(FILE)


def test_a_removed_server_takes_its_own_comment_and_no_others():
    made = drop_entry(FILE, "defaults", "sentry")
    kept = [line for line in comments(FILE) if "traces" not in line]
    assert comments(made) == kept
    assert [one["name"] for one in tomllib.loads(made)["defaults"]["mcp"]] == ["files"]


def test_removing_what_was_added_gives_the_file_back():
    for agent in ("main", "other", "defaults"):
        assert drop_entry(set_entry(FILE, agent, NEW), agent, "new") == FILE


def test_a_changed_field_leaves_the_rest_of_its_table_as_it_was_written():
    plain = tomllib.loads(FILE)["defaults"]["mcp"][0]
    made = set_entry(FILE, "defaults", {**plain, "enabled": False})
    assert made == FILE.replace("pinned later\n]\n", "pinned later\n]\nenabled = false\n")


def test_the_last_server_can_go():
    made = drop_entry(FILE, "main", "postgres")
    assert "mcp" not in tomllib.loads(made)["agents"][0]
    assert comments(made) == comments(FILE)


def test_inline_tables_are_edited_inline():
    first = '{id = "a", mcp = [{name = "x", transport = "http", url = "u"}]}'
    text = f'agents = [{first}, {{id = "b"}}] # !\n'
    made = set_entry(set_entry(text, "b", NEW), "a", NEW)
    agents = tomllib.loads(made)["agents"]
    assert [one["name"] for one in agents[0]["mcp"]] == ["x", "new"]
    assert agents[1]["mcp"] == [NEW]
    assert made.endswith("# !\n")
    assert "mcp" not in tomllib.loads(drop_entry(made, "b", "new"))["agents"][1]


def test_an_empty_file_gets_its_defaults():
    assert tomllib.loads(set_entry("", "defaults", NEW)) == {"defaults": {"mcp": [NEW]}}


def test_what_is_not_there_cannot_be_removed():
    with pytest.raises(KeyError):
        drop_entry(FILE, "main", "missing")


NAMES = st.sampled_from(["files", "sentry", "postgres", "new", "more"])
AGENTS = st.sampled_from(["defaults", "main", "other"])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(AGENTS, NAMES, st.none() | TEXT), max_size=6))
def test_whatever_is_done_the_file_says_that_and_nothing_else(steps: list[Any]):
    text, expected = FILE, tomllib.loads(FILE)
    for agent, name, value in steps:
        holder = expected["defaults"] if agent == "defaults" else _agent(expected, agent)
        entries = {one["name"]: one for one in holder.get("mcp", [])}
        if value is None and name not in entries:
            continue
        if value is None:
            del entries[name]
            text = drop_entry(text, agent, name)
        else:
            entries[name] = {"name": name, "transport": "stdio", "command": value}
            text = set_entry(text, agent, entries[name])
        holder["mcp"] = list(entries.values())
        if not entries:
            del holder["mcp"]
    assert tomllib.loads(text) == expected
    assert "# the end" in text


def _agent(plain: dict[str, Any], agent_id: str) -> dict[str, Any]:
    return next(one for one in plain["agents"] if one["id"] == agent_id)


def test_keys_in_dots_and_tables_within_an_agent_are_left_alone():
    dotted = "[[agents]]\nid = 'a'\n[agents.other]\nx = 1\n[agents.other.more]\ny.z = 2\n"
    made = set_entry(dotted, "a", NEW)
    assert tomllib.loads(made)["agents"][0]["other"] == {"x": 1, "more": {"y": {"z": 2}}}
    beside = set_entry("defaults.other = 1\n\n[[agents]]\nid = 'a'\n", "defaults", NEW)
    assert tomllib.loads(beside)["defaults"] == {"other": 1, "mcp": [NEW]}


SCATTERED = """\
# Our agents.
[[agents]]
id = "main" # the first

# for everybody
[[defaults.mcp]]
name = "files"
transport = "stdio"
command = "npx"
args = [ # these are no headings
    "-y",
    '''
[[not.a]]
[[heading]]
''',
]

# the second one
[[agents]]
id = "other"

# the end
"""


@pytest.mark.parametrize("agent", ["main", "other", "defaults"])
def test_tables_out_of_order_are_gathered_with_their_comments(agent: str):
    made = set_entry(SCATTERED, agent, NEW)
    assert sorted(comments(made)) == sorted(comments(SCATTERED))
    assert "# the second one\n[[agents]]" in made
    assert "# for everybody\n[[defaults.mcp]]" in made
    assert made.endswith("# the end\n")
    dropped = drop_entry(set_entry(made, "main", NEW), "defaults", "files")
    assert "# the second one\n[[agents]]" in dropped
    assert dropped.endswith("# the end\n")


def test_the_line_ends_of_a_file_are_kept():
    text = FILE.replace("\n", "\r\n")
    for made in (
        set_entry(text, "main", NEW),
        set_entry(text, "main", {**NEW, "name": "postgres"}),
        drop_entry(text, "defaults", "files"),
    ):
        assert made.count("\r\n") == made.count("\n") > 0
    assert drop_entry(set_entry(text, "main", NEW), "main", "new") == text


COMMENTED = """\
[[agents]]
id = "main"

[[agents.mcp]]
name = "fs" # its name
transport = "stdio"
command = "npx" # found on the path
args = [
    "-y",        # do not ask
    "pkg@1.2.3", # pinned
]
# what it reads
[agents.mcp.env]
LOG = "warn" # quiet
TOKEN = "${T}" # from the vault
"""


@pytest.mark.parametrize(
    "change",
    [
        {"args": ["-y", "pkg@2"]},
        {"args": ["-y", "pkg@1.2.3", "/more"]},
        {"env": {"LOG": "info", "TOKEN": "${T}"}},
        {"env": {"LOG": "warn", "TOKEN": "${T}", "X": "1"}},
        {"command": "uvx"},
        {"enabled": False, "timeout_ms": 9},
    ],
)
def test_a_change_within_a_list_or_a_table_keeps_the_comments_there(change: dict[str, Any]):
    entry = tomllib.loads(COMMENTED)["agents"][0]["mcp"][0]
    made = set_entry(COMMENTED, "main", {**entry, **change})
    assert tomllib.loads(made)["agents"][0]["mcp"] == [{**entry, **change}]
    remarks = [line.partition("#")[2] for line in comments(COMMENTED)]
    assert [line.partition("#")[2] for line in comments(made)] == remarks
