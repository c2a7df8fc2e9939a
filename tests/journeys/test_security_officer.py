"""Journey 5: the security officer begins with nothing allowed, and trusts nothing unverified."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bascule.cli.command_line import program
from bascule.testing import ScriptedHttpServer, ScriptedServer, tool
from tests.flow.up_process import Up, serving
from tests.journeys.shell import Terminal
from tests.waits import until

OLD, NEW = "first-value-of-the-token", "second-value-of-the-token"
PAGES = Path(__file__).parents[2] / "docs"
_PATHS = {"type": "object", "properties": {"path": {"type": "string"}}}
FILES = ScriptedServer(
    tools=[tool("read_file", inputSchema=_PATHS), tool("write_file", inputSchema=_PATHS)],
    behaviours={"read_file": "echo", "write_file": "echo"},
)
Office = tuple[Terminal, Up, ScriptedHttpServer]
WRITE = "tools call files/write_file --arg path="


@asynccontextmanager
async def _office(
    folder: Path, *words: str
) -> AsyncGenerator[tuple[Terminal, Up, ScriptedHttpServer]]:
    """Open a terminal beside a process that serves nothing yet, and a server of files."""
    data, anchors = folder / "data", folder / "elsewhere" / "ledger.anchors"
    anchors.parent.mkdir()
    env = {"BASCULE_NODE_EGRESS": "127.0.0.1", "BASCULE_LEDGER_ANCHOR_FILE": str(anchors)}
    async with ScriptedHttpServer(server=FILES) as files, serving(data, "--empty", **env) as up:
        yield Terminal(folder, data), up, files
        assert await up.end() == 0


async def _set_up(at: Terminal, files: ScriptedHttpServer) -> None:
    """Add the server, with the commands that are printed."""
    added = await at(f"servers add files --url {files.url} --auth-ref secret://files_token")
    assert added.code == 0, added.err
    giving, *others = added.commands
    assert " secrets set files_token --bind files" in giving
    assert (await at.type_in(f"printf {OLD} | {giving}")).code == 0
    for line in others:
        assert (await at.type_in(line)).code == 0, line


def _rule_of_the_page(name: str = "registry") -> str:
    """Return the command that sets the rule on arguments of a page."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    [found] = re.findall(r"^    bascule (servers set files .*args\.path.*)$", text, re.M)
    return found


def _paths(files: ScriptedHttpServer) -> list[str]:
    """Return the paths of the calls that came to the server."""
    bodies = [json.loads(seen.body) for seen in files.requests if seen.method == "tools/call"]
    return [body["params"]["arguments"]["path"] for body in bodies]


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:audit", "cli:next-command")
async def test_a_rule_denies_and_the_denial_is_verified_elsewhere(tmp_path: Path):
    async with _office(tmp_path) as (at, _, files):
        nothing = await at("tools list")
        assert (nothing.code, "there is no task yet" in nothing.err) == (1, True)
        await _set_up(at, files)
        await at.works(f"{WRITE}/etc/passwd")
        await at.works(_rule_of_the_page())
        await at.works(f"{WRITE}/srv/inbox/note")
        for path in ("/etc/passwd", "/srv/inbox/../passwd"):
            denied = await at(f"{WRITE}{path}")
            assert (denied.code, "approval_policy.rules[0]" in denied.err) == (10, True)
        assert _paths(files) == ["/etc/passwd", "/srv/inbox/note"]

        found = json.loads(await at.works("audit search --status denied --json"))["entries"]
        assert [one["event"]["rule"] for one in found] == ["approval_policy.rules[0]"] * 2
        life = await at.works(f"audit show {found[0]['event']['request_id']}")
        assert "of files/write_file: denied" in life
        assert "reason: rule_denied" in life

        anchor = json.loads(json.loads(await at.works("audit checkpoint --json"))["anchor"])
        await at.works("audit export --output rows.jsonl")
    auditor = Terminal(tmp_path / "auditor", tmp_path / "auditor" / "no-data")
    auditor.folder.mkdir()
    shutil.copy(tmp_path / "rows.jsonl", auditor.folder)
    shutil.copy(tmp_path / "elsewhere" / "ledger.anchors", auditor.folder)
    verify = f"audit verify --file rows.jsonl --key {anchor['public_key']} --anchors ledger.anchors"
    whole = await auditor.works(verify)
    assert whole.startswith("ok: nothing was changed\n")
    assert "only accidents" not in whole
    await _find_what_was_changed(auditor, verify, found[0]["number"])


async def _find_what_was_changed(auditor: Terminal, verify: str, number: int) -> None:
    rows = auditor.folder / "rows.jsonl"
    lines = rows.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = lines[number - 1].replace("rule_denied", "rule_allowd")
    rows.write_text("\n".join([*lines, ""]), encoding="utf-8")
    changed = await auditor(verify)
    assert (changed.code, f"problem: row {number}: changed" in changed.out) == (1, True)
    rows.write_text("\n".join([*lines[: number - 1], *lines[number:], ""]), encoding="utf-8")
    assert (await auditor(verify)).code == 1


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:secrets")
async def test_a_secret_is_rotated_and_no_call_fails(tmp_path: Path):
    async with _office(tmp_path) as (at, up, files):
        await _set_up(at, files)
        token = json.loads(await at.works("tokens create --role client --task mine --json"))[
            "token"
        ]

        def bearers() -> list[str]:
            calls = [seen for seen in files.requests if seen.method == "tools/call"]
            return [seen.headers["Authorization"].removeprefix("Bearer ") for seen in calls]

        outcomes: list[tuple[int, Any]] = []

        async def one_after_another() -> None:
            while NEW not in bearers():
                outcomes.append(await up.call(token, "mcp__files__read_file", path="/a"))

        calling = asyncio.create_task(one_after_another())
        await until(lambda: outcomes)
        rotated = await at.type_in(f"printf {NEW} | {program()} secrets set files_token")
        assert (rotated.code, "set files_token, version 2" in rotated.err) == (0, True)
        async with asyncio.timeout(60):
            await calling
        assert all(status == 200 and body["ok"] for status, body in outcomes)
        assert set(bearers()) == {OLD, NEW}
        acts = await at.works("audit search --event secret")
        assert acts.count("secret set: files_token") == 2
        listed = await at.works("secrets list")
        assert not any(value in f"{acts}{listed}{rotated.out}{rotated.err}" for value in (OLD, NEW))


@pytest.mark.timeout(180)
@pytest.mark.requirement("cli:audit", "cli:secrets")
async def test_an_operators_token_cannot_give_itself_more(tmp_path: Path):
    async with _office(tmp_path) as (at, up, files):
        await _set_up(at, files)
        await at.works(_rule_of_the_page())
        made = json.loads(await at.works("tokens create --role operator --name olga --json"))
        token = made["token"]
        as_olga = f"--api-url {up.url} --token {token}"
        for method, path, body in (
            ("POST", "/admin/api/tokens", {"name": "mine", "role": "admin"}),
            ("PUT", "/admin/api/secrets/files_token", {"value": "x"}),
            ("POST", "/admin/api/secrets/files_token/bind", {"server": "files"}),
            ("POST", "/admin/api/audit/checkpoint", {"new_key": True}),
        ):
            status, answer = await up.ask(method, path, token=token, body=body)
            assert (status, answer["error"]["code"]) == (403, "forbidden"), path
        elsewhere = await at(f"servers set files http.url=http://127.0.0.1:9/mcp {as_olga}")
        assert (elsewhere.code, "administrator" in elsewhere.err) == (10, True), elsewhere
        assert (await at(f"servers accept files {as_olga}")).code == 10
        refused = await at(f"servers set files approval_policy.rules=[] {as_olga}")
        needs = "approval_policy: needs the permission policy:write"
        assert (refused.code, needs in refused.err) == (10, True), refused
        assert (await at(f"servers remove files {as_olga}")).code == 10
        # What an operator may loosen has their name on it.
        await at.works(f"servers set files budgets.tool_timeout_ms=90000 {as_olga}")
        loosened = json.loads(await at.works("audit search --event policy_loosened --json"))
        assert loosened["entries"][0]["event"]["by"] == "olga"
        assert (await at(f"{WRITE}/etc/passwd")).code == 10
        assert _paths(files) == []


class Asked:
    """A call of an agent that waits for somebody, and the officer's terminal."""

    def __init__(self, at: Terminal, up: Up, agent: str) -> None:
        self.at = at
        self._up = up
        self._agent = agent

    async def call(self, path: str, wait_ms: int = 60_000) -> tuple[int, Any]:
        name, arguments = "mcp__files__write_file", {"path": path}
        body = {"name": name, "arguments": arguments, "approval_wait_ms": wait_ms}
        return await self._up.ask("POST", "/api/v1/tools/call", token=self._agent, body=body)

    async def waiting(self) -> list[str]:
        listed = json.loads(await self.at.works("approvals list --json"))
        return [one["id"] for one in listed["approvals"]]


async def _try_to_switch_it_off(at: Terminal, up: Up, id: str, digest: str) -> None:
    """Take every way of an operator around a rule that asks, and be refused."""
    made = json.loads(await at.works("tokens create --role operator --name olga --json"))
    as_olga = f"--api-url {up.url} --token {made['token']}"
    platform = at.folder / "platform.toml"
    rule = '{ tools = ["write_*"], effect = "allow" }'
    platform.write_text(f"[platform]\nrules = [{rule}]\n", encoding="utf-8")
    for words in (
        f"approvals approve {id} --digest {digest}",
        "servers set files approval_policy.rules=[]",
        "servers set files approval_policy=null",
        f"servers apply {platform}",
        "servers remove files",
        "servers rollback 1 --only server/files",
    ):
        refused = await at(f"{words} {as_olga}")
        assert refused.code == 10, (words, refused)


@pytest.mark.timeout(180)
@pytest.mark.requirement("approval:human", "people:policy-write", "cli:approvals")
async def test_a_rule_asks_with_the_exact_arguments_and_nobody_switches_it_off(tmp_path: Path):
    async with _office(tmp_path) as (at, up, files):
        await _set_up(at, files)
        await at.works(_rule_of_the_page("approvals"))
        made = await at.works("tokens create --role client --task mine --name agent --json")
        asked = Asked(at, up, json.loads(made)["token"])
        assert (await asked.call("/srv/inbox/note"))[0] == 200
        calling = asyncio.create_task(asked.call("/etc/passwd"))
        [id] = await until(asked.waiting)
        shown = json.loads(await at.works(f"approvals show {id} --json"))
        assert json.loads(shown["arguments"]) == {"path": "/etc/passwd"}
        assert shown["rule"].startswith("approval_policy.rules[0]: !args.path")
        read = await at.works(f"approvals show {id}")
        assert all(words in read for words in ('"path": "/etc/passwd"', "asked by: agent"))
        await _try_to_switch_it_off(at, up, id, shown["digest"])
        assert await asked.waiting() == [id]

        await at.works(f"approvals deny {id} --reason 'not that file'")
        status, outcome = await calling
        assert (status, outcome["error"]["code"]) == (403, "mcp_approval_denied")
        assert "not that file" in outcome["error"]["message"]
        assert _paths(files) == ["/srv/inbox/note"]
        found = json.loads(await at.works(f"audit search --approval {id} --json"))["entries"]
        events = [one["event"] for one in reversed(found)]
        steps = [(one["state"], one["by"]) for one in events if one["event"] == "approval"]
        assert steps == [("pending", "agent"), ("denied", "cli-approvals")]
        [call] = [one for one in events if one["event"] == "call"]
        assert (call["status"], call["code"]) == ("denied", "mcp_approval_denied")
        assert "denied by cli-approvals" in await at.works(f"audit show {call['request_id']}")
