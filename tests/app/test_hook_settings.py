"""Where an approval hook may be: what else is written there is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.app.settings import load_settings
from bascule.errors import InvalidRecord

LOCAL = "plain http, which others can read and change, goes only to a local address"
NO_URL = "is not a URL such as https://host/path"


def load(url: str, egress: str = "") -> str | None:
    environ = {
        "HOME": "/home/ada",
        "BASCULE_APPROVALS_HOOK_URL": url,
        "BASCULE_NODE_EGRESS": egress,
    }
    return load_settings({}, environ)[0].approvals.hook_url


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.requirement("approval:hook:egress")
@pytest.mark.parametrize(
    ("url", "egress"),
    [
        ("https://hook.example.com/ask?k=1", ""),
        ("https://203.0.114.9/", ""),
        ("http://127.0.0.1:8080/ask", ""),
        ("http://[::1]:8080/ask", ""),
        ("http://localhost/ask", ""),
        ("http://10.1.2.3/ask", "10.1.0.0/16"),
        ("http://[fd00::7]/ask", "fd00::7"),
        ("https://10.1.2.3/ask", "10.1.2.3"),
    ],
)
def test_https_and_local_addresses_that_the_node_may_reach_are_taken(url: str, egress: str):
    assert load(url, egress) == url


REFUSED: dict[str, tuple[str, str]] = {
    "http to the world": ("http://hook.example.com/x-token", LOCAL),
    "http to a public address": ("http://8.8.8.8/x-token", LOCAL),
    "http to a listed name": ("http://hook.internal/x-token", LOCAL),
    "an unlisted address": ("http://10.9.9.9/x-token", "this node does not connect to 10.9.9.9"),
    "an unlisted address by https": ("https://10.9.9.9/x-token", "this node does not connect to"),
    "metadata": ("http://169.254.169.254/x-token", "this node does not connect to 169.254.169"),
    "metadata inside": ("https://[::ffff:169.254.169.254]/x-token", "this node does not connect"),
    "an odd spelling": ("https://0x0a090909/x-token", "is an unusual way to write 10.9.9.9"),
    "a password": ("https://ada:x-token@hook.example.com/", "holds a user name or password"),
    "another scheme": ("ftp://hook.example.com/x-token", NO_URL),
    "no scheme": ("hook.example.com/x-token", NO_URL),
    "a space": ("https://hook.example.com/x- token", NO_URL),
    "no host": ("https:///x-token", NO_URL),
}


@pytest.mark.requirement("approval:hook:egress")
@pytest.mark.parametrize("case", REFUSED)
def test_any_other_address_is_refused_with_its_field_and_not_repeated(case: str):
    url, words = REFUSED[case]
    with pytest.raises(InvalidRecord) as error:
        load(url, "10.1.0.0/16,hook.internal")
    [problem] = error.value.problems
    assert problem.startswith("approvals.hook_url: ")
    assert words in problem
    assert problem.endswith("(from BASCULE_APPROVALS_HOOK_URL)")
    assert "x-token" not in problem


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "soon"])
def test_a_deadline_is_of_one_second_to_a_minute(seconds: str):
    environ = {"HOME": "/home/ada", "BASCULE_APPROVALS_HOOK_SECONDS": seconds}
    with pytest.raises(InvalidRecord, match=r"^approvals\.hook_seconds: "):
        load_settings({}, environ)
