"""Which credential goes where: the pairs of a record."""

from __future__ import annotations

from typing import Any

import pytest

from bascule.model.backend import BackendRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.task import Executable, TaskRecord
from bascule.policy.pairs import Pair, origin, pairs_of, shown
from bascule.wire.records import decode

URL = "https://a.example/mcp"


def http(url: str = URL, **fields: Any) -> frozenset[Pair]:
    plain = {"server_id": "s", "transport": "http", "http": {"url": url, **fields}}
    return pairs_of(decode(ServerRecord, plain)[0])


def stdio(*line: str, **fields: Any) -> frozenset[Pair]:
    process = {"command": line[0], "args": list(line[1:]), **fields}
    return pairs_of(
        decode(ServerRecord, {"server_id": "s", "transport": "stdio", "stdio": process})[0]
    )


def words(pairs: frozenset[Pair]) -> set[tuple[str, str]]:
    return {(pair.reference, pair.target) for pair in pairs}


def test_every_place_of_a_remote_server_is_looked_at():
    pairs = http(
        "https://A.example:443/${ENV:PLACE}?q=${HOME}",
        headers={"X": "a ${KEY:-b} ${OTHER}", "Y": "secret://y", "Z": "plain"},
        auth_ref="gh",
        tls={"client_certificate": "/c", "client_key": "file:///k"},
    )
    assert {pair.target for pair in pairs} == {"https://a.example"}
    assert {pair.reference for pair in pairs} == {
        "${ENV:PLACE}",
        "${ENV:KEY}",
        "${ENV:OTHER}",
        "secret://y",
        "secret://gh",
        "file:///c",
        "file:///k",
    }


def test_a_client_secret_goes_to_both_its_places():
    auth = {
        "type": "oauth_client_credentials",
        "ref": "gh",
        "client_id": "${CLIENT}",
        "token_url": "https://login.example/t",
    }
    assert words(http(auth=auth)) == {
        (reference, target)
        for reference in ("secret://gh", "${ENV:CLIENT}")
        for target in ("https://a.example", "https://login.example")
    }


def test_the_line_of_a_process_is_its_target_with_folder_and_addresses():
    [pair] = stdio("uvx", "my server", cwd="/srv", env_from=["KEY"], env={"LOG": "x"})
    assert pair == Pair("${ENV:KEY}", "cd /srv && uvx 'my server'")
    for name, text in (
        ("HTTPS_PROXY", "p"),
        ("X", "https://b"),
        ("PYTHONPATH", "/x"),
        ("HOST", "h"),
        ("PGHOST", "h"),
        ("BASEURL", "h"),
        ("KAFKA_BROKERS", "h"),
        ("SSLKEYLOGFILE", "/x"),
        ("RELAYED_BY", "evil.example"),
        ("VIA", "evil.example:25"),
        ("VIA", "me@10.0.0.1"),
        ("VIA", "good:1,evil:2"),
        ("VIA", "[::1]:9"),
    ):
        [directed] = stdio("uvx", "my server", cwd="/srv", env_from=["KEY"], env={name: text})
        assert directed == Pair(pair.reference, pair.target, (f"{name}={text}",))
        assert text not in str(directed).partition(" with ")[2].replace(name, "")
        assert shown(directed)["target"] == f"{pair.target} with {name}"


@pytest.mark.parametrize(
    ("name", "text"),
    [("LOG_LEVEL", "debug"), ("DEBUG", "1"), ("MODE", "read-only"), ("GREETING", "Hello, world")],
)
def test_an_ordinary_setting_is_not_where_a_credential_goes(name: str, text: str):
    [pair] = stdio("uvx", "x", env_from=["KEY"], env={name: text})
    assert pair.beside == ()


def test_whom_a_host_is_believed_to_be_by_belongs_to_it():
    """With a certificate authority of the writer's own, any host is the one that was meant."""
    [plain] = http(auth_ref="gh")
    [own] = http(auth_ref="gh", tls={"ca": "/tmp/mine.pem"})
    assert own == Pair(plain.reference, plain.target, ("tls.ca=/tmp/mine.pem",))
    assert shown(own)["target"] == "https://a.example with tls.ca"


def test_what_every_machine_sets_is_no_credential():
    assert not stdio("uvx", "x", "${HOME}/notes", env={"A": "${USER}"}, env_from=["LANG", "TZ"])
    assert not http(headers={"X": "literal"})


def test_backends_and_tasks_have_pairs_and_others_have_none():
    backend = BackendRecord(name="b", base_url="https://b/v1", key_ref="k", headers={"X": "${X}"})
    assert words(pairs_of(backend)) == {("secret://k", "https://b"), ("${ENV:X}", "https://b")}
    task = TaskRecord(task_id="t", executable=Executable(path="a.wasm", env={"K": "secret://k"}))
    assert words(pairs_of(task)) == {("secret://k", "a.wasm")}
    assert not pairs_of(ProfileRecord(name="p"))
    assert not pairs_of(None)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a.example", "https://a.example"),
        ("HTTPS://A.example:443/x", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("https://a.example:8443/x", "https://a.example:8443"),
        ("https://[::1]:9/x", "https://[::1]:9"),
        ("https://a.example/${X}", "https://a.example"),
        ("https://a.example${X}/y", "https://a.example${X}/y"),
        ("https://${X}/y", "https://${X}/y"),
        ("https://${X:-a/b}.c/y", "https://${X:-a/b}.c/y"),
        ("${BASE}/y", "${BASE}/y"),
        ("https://a.example@b.example/", "https://a.example@b.example"),
        (r"https://a.example\@b.example/${X}", r"https://a.example\@b.example"),
    ],
)
def test_a_target_is_whose_server_it_is(url: str, target: str):
    assert origin(url) == target
