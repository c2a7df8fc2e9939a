"""``bascule nodes``: what a node serves, said and shown on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.served import served


@pytest.mark.requirement("registry:nodes:assign")
def test_a_node_is_assigned_tasks_and_labels_and_shown_with_what_that_comes_to(tmp_path: Path):
    with served(tmp_path) as up:
        assert up.json("nodes", "list")["nodes"][0]["tasks"] is None
        done = up.json("nodes", "assign", "east", "--task", "demo")
        assert done["node"]["tasks"] == ["demo"]
        assert (done["serves_tasks"], done["serves_servers"]) == (["demo"], ["notes"])
        table = up("nodes", "list").out
        [line] = [line for line in table.splitlines() if line.startswith("east")]
        assert "unseen" in line
        assert "demo" in table
        shown = up("nodes", "show", "east")
        assert "assigned: tasks demo, by " in shown.out
        assert "servers: notes" in shown.out
        other = up("nodes", "assign", "east", "--label", "nowhere")
        assert "no server has the tag 'nowhere'" in other.err
        assert "servers: none" in other.out
        assert "assigned: all" in up("nodes", "assign", "east", "--all").out
        trail = up.json("audit", "search", "--event", "node_assigned")["entries"]
        said = [(one["event"]["node"], one["event"]["tasks"]) for one in trail]
        assert said == [("east", None), ("east", None), ("east", ["demo"])]


@pytest.mark.requirement("registry:nodes:assign")
def test_what_cannot_be_assigned_is_refused_and_says_why(tmp_path: Path):
    with served(tmp_path) as up:
        assert "there is no task 'x'" in up("nodes", "assign", "east", "--task", "x").err
        for words in ((), ("--all", "--task", "demo")):
            done = up("nodes", "assign", "east", *words)
            assert (done.code, "give --task or --label, or --all" in done.err) == (1, True)
        own = up.json("nodes", "list")["nodes"][0]["name"]
        assert "own node" in up("nodes", "assign", own, "--task", "demo").err
        missing = up("nodes", "show", "west")
        assert (missing.code, "there is no node 'west'" in missing.err) == (1, True)
        assert json.loads(up("nodes", "list", "--json").out)["nodes"][0]["name"] == own
