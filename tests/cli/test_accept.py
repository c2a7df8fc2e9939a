"""``bascule servers accept``: an administrator lets in what an operator may not write alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.served import Served, command, served

pytestmark = pytest.mark.requirement("security:pairs")
GITHUB = ("--env-from", "GITHUB_TOKEN", "--", "uvx", "mcp-server-git")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("up"), "--empty") as up:
        yield up


@pytest.fixture(scope="module")
def operator(up: Served) -> str:
    return up("tokens", "create", "--role", "operator", "--json").json["token"]


def test_what_an_operator_may_not_write_an_administrator_accepts(up: Served, operator: str):
    by = ("--url", up.url, "--token", operator)
    adding = ("servers", "add", "github", "--api-url", up.url, "--token", operator)
    refused = command(*adding, *GITHUB)
    assert refused.code == 10
    assert "${ENV:GITHUB_TOKEN} for uvx mcp-server-git" in refused.err
    assert "bascule servers accept github" in refused.err
    assert command("servers", "accept", "github", *by).code == 10
    waiting = up("servers", "accept")
    assert waiting.code == 0
    assert "uvx mcp-server-git" in waiting.out
    [listed] = up("servers", "accept", "--json").json["proposals"]
    assert listed["id"] == "github"
    accepted = up("servers", "accept", "github")
    assert accepted.code == 0, accepted.err
    assert "accepted: ${ENV:GITHUB_TOKEN} for uvx mcp-server-git" in accepted.out
    assert "wrote server github" in accepted.out
    assert up("servers", "accept").out.strip() == "nothing waits"
    assert command("servers", "disable", "github", *by).code == 0


def test_a_backend_is_accepted_as_well(up: Served, operator: str):
    words = ("backends", "add", "b", "--base-url", "https://b.example/v1", "--key-ref", "b-key")
    assert command(*words, "--url", up.url, "--token", operator).code == 10
    assert up("backends", "accept", "b").code == 0
    assert up("backends", "get", "b", "--json").json["key_ref"] == "b-key"


def test_there_must_be_something_to_accept(up: Served):
    done = up("servers", "accept", "nobody")
    assert done.code == 1
    assert "there is no proposal for server 'nobody'" in done.err


def test_the_owner_of_the_data_directory_is_an_administrator(up: Served):
    assert up("tokens", "create", "--role", "admin").code == 0  # the setup token is gone
    own = ("--env-from", "OWN_TOKEN", "--", "uvx", "mcp-server-git")
    assert up("servers", "add", "own", *own).code == 0
