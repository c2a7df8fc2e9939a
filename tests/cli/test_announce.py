"""``bascule registry announce``: a registry says on the command line which one it replaces."""

from __future__ import annotations

from pathlib import Path

from tests.cli.served import command, served


def test_a_registry_is_announced_and_the_trail_says_by_whom(tmp_path: Path):
    with served(tmp_path, "--empty") as up:
        done = up("registry", "announce", "--succeeds", "0123456789abcdef")
        assert done.code == 0, done.err
        assert "replaces 0123456789abcdef" in done.out
        again = up.json("registry", "announce", "--succeeds", "fedcba9876543210")
        assert again["predecessor"] == "fedcba9876543210"
        history = up.json("servers", "history")
        assert history["predecessor"] == "fedcba9876543210"
        own = up.json("registry", "announce", "--succeeds", history["store_id"])
        assert own["predecessor"] == history["store_id"] != own["store_id"]
        trail = up.json("audit", "search", "--event", "store_announced")["entries"]
        said = [one["event"] for one in trail]
        named = ["fedcba9876543210", "0123456789abcdef"]
        assert [one["succeeds"] for one in said] == [history["store_id"], *named]
        assert said[0]["store_id"] == own["store_id"]
        assert {one["store_id"] for one in said[1:]} == {history["store_id"]}
        assert all(one["by"] for one in said)


def test_the_store_has_to_be_named():
    done = command("registry", "announce")
    assert done.code == 2
    assert "--succeeds" in done.err
