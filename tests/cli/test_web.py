"""``bascule web`` and the link of ``bascule up``: who has it opens the page, once."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bascule.wire.api.addresses import LOGIN, LOGOUT, ME, TOKENS, WATCH
from tests.cli.served import Served, command, process, served
from tests.cli.terminal import Terminal

#: A browser that follows a redirect file, and writes down how it was started and what it saw.
BROWSER = """\
import html, json, os, re, sys, urllib.request
path = sys.argv[1].removeprefix("file://")
link = html.unescape(re.search(r"url=([^\\"]+)", open(path, encoding="utf-8").read())[1])
address, _, code = link.partition("/admin/#code=")
request = urllib.request.Request(
    address + "/admin/api/login",
    json.dumps({"code": code}).encode(),
    {"Content-Type": "application/json"},
)
answer = json.load(urllib.request.urlopen(request, timeout=20))
seen = {"argv": sys.argv, "mode": os.stat(path).st_mode & 0o777, "code": code, "path": path}
open(sys.argv[0] + ".seen", "w", encoding="utf-8").write(json.dumps({**seen, **answer}))
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("web") / "data") as found:
        yield found


@contextmanager
def asked(
    url: str, method: str, path: str, *, token: str | None = None, body: Any = None
) -> Generator[HTTPResponse]:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=20)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        yield connection.getresponse()


def ask(*where: str, token: str | None = None, body: Any = None) -> tuple[int, Any]:
    url, method, path = where
    with asked(url, method, path, token=token, body=body) as answer:
        return answer.status, json.load(answer)


def login(link: str) -> tuple[int, Any]:
    """Do what the page does with a link."""
    address, _, code = link.partition("/admin/#code=")
    return ask(address, "POST", LOGIN, body={"code": code})


def test_a_link_is_all_that_is_printed_and_opens_the_page_as_an_administrator(up: Served):
    done = up("web")
    link = done.out.strip()
    assert link.startswith(f"{up.url}/admin/#code=bsc_")
    assert "once, within ten minutes, as admin" in done.err
    status, page = login(link)
    assert (status, page["role"], page["person"]) == (200, "admin", None)
    assert ask(up.url, "GET", TOKENS, token=page["token"])[0] == 200
    assert login(link)[0] == 401
    assert ask(up.url, "GET", TOKENS, token=page["token"])[0] == 401


def test_a_link_is_for_a_role_a_person_and_a_task(up: Served):
    made = up.json("web", "--role", "client", "--task", "demo", "--user", "alice")
    assert made["warnings"] == [
        "person: there is no user 'alice' yet; until there is, calls are refused"
    ]
    status, page = login(made["url"])
    assert (status, page["role"], page["person"], page["task_id"]) == (
        200,
        "client",
        "alice",
        "demo",
    )
    assert ask(up.url, "GET", ME, token=page["token"])[1]["person"] == "alice"
    listed = up.json("tokens", "list")["tokens"]
    row = next(one for one in listed if one["id"] == page["token_id"])
    assert (row["page"], row["name"], row["state"]) == (True, "page of alice", "valid")
    assert up("tokens", "revoke", page["token_id"]).code == 0
    assert ask(up.url, "GET", ME, token=page["token"])[0] == 401


def test_neither_code_nor_token_stays_anywhere_in_the_data_directory(up: Served):
    link = up.json("web")["url"]
    page = login(link)[1]
    assert ask(up.url, "POST", LOGOUT, token=page["token"])[0] == 200
    hidden = [link.partition("code=")[2].encode(), page["token"].encode()]
    files = [one for one in up.data.rglob("*") if one.is_file()]
    assert files
    assert [one for one in files if any(word in one.read_bytes() for word in hidden)] == []


def test_a_code_to_confirm_opens_no_page(up: Served):
    code = up("web", "--confirm").out.strip()
    assert login(f"{up.url}/admin/#code={code}")[0] == 401
    assert set(up.json("web", "--confirm")) == {"code", "expires_at"}
    refused = up("web", "--confirm", "--role", "viewer")
    assert (refused.code, "takes none of --role" in refused.err) == (2, True)


def test_what_could_be_no_token_is_no_link(up: Served):
    refused = up("web", "--role", "client")
    assert "--task: is required: a client token is bound to a task" in refused.err
    assert "--user: " in up("web", "--user", "no such name").err
    assert up("web", "--role", "node").code == 2
    assert up("web", "--role", "link").code == 2


def test_where_nothing_serves_there_is_no_link(tmp_path: Path):
    done = command("web", "--data-dir", str(tmp_path / "data"))
    assert (done.code, done.out) == (1, "")
    assert "nothing serves" in done.err
    assert "up --data-dir" in done.err
    assert not (tmp_path / "data").exists()


@pytest.mark.requirement("admin:login:redirect-file")
def test_a_browser_is_led_by_a_private_file_and_never_given_the_code(up: Served, tmp_path: Path):
    script = tmp_path / "browser.py"
    script.write_text(BROWSER, encoding="utf-8")
    where = ("--data-dir", str(up.data))
    done = process("web", "--open", *where, BROWSER=f"{sys.executable} {script} %s")
    assert (done.code, done.out) == (0, ""), done.err
    assert "opened in the browser" in done.err
    seen = json.loads((tmp_path / "browser.py.seen").read_text(encoding="utf-8"))
    assert seen["role"] == "admin"
    assert seen["mode"] == 0o600
    assert seen["code"] not in " ".join(seen["argv"])
    assert not Path(seen["path"]).exists()


def test_without_a_browser_the_link_is_printed(up: Served):
    done = process("web", "--open", "--data-dir", str(up.data), BROWSER="", PATH="", DISPLAY="")
    assert done.code == 0, done.err
    assert "no browser was found" in done.err
    assert login(done.out.strip())[0] == 200
    assert list(up.data.glob("open-*")) == []


@pytest.mark.requirement("admin:login:streams")
def test_revoking_a_page_ends_its_open_stream(up: Served):
    page = login(up.json("web", "--role", "viewer")["url"])[1]
    with asked(up.url, "GET", f"{WATCH}?since=0", token=page["token"]) as stream:
        while b"data:" not in stream.readline():
            pass
        assert up("tokens", "revoke", page["token_id"]).code == 0
        assert up("tasks", "set", "demo", "name=unseen").code == 0
        rest = stream.read()
    assert b"event: error" in rest
    assert b"unauthenticated" in rest


@pytest.mark.requirement("admin:link:terminal", "admin:login:ends")
def test_up_shows_a_terminal_one_link_and_its_page_ends_with_the_process(tmp_path: Path):
    data = tmp_path / "data"
    words = ("up", "--port", "0", "--data-dir", str(data))
    first = Terminal([sys.executable, "-m", "bascule", *words])
    try:
        first.until("approvals watch")
        link = next(
            word for word in first.shown.split() if word.startswith("http") and "#code=" in word
        )
        status, page = login(link)
        assert (status, page["role"]) == (200, "admin")
        setup = (data / "setup-token").read_text(encoding="utf-8").strip()
        assert setup not in first.shown
        assert first.shown.count("#code=") == 1
    finally:
        first.process.terminate()
        first.finish()
    assert page["token"] not in first.shown
    listed = command("tokens", "list", "--json", "--data-dir", str(data)).json["tokens"]
    assert [one["state"] for one in listed if one["page"]] == ["expired"]
    with served(data) as again:
        assert ask(again.url, "GET", TOKENS, token=page["token"])[0] == 401
        assert login(f"{again.url}/admin/#{link.partition('#')[2]}")[0] == 401
        assert [one["id"] for one in again.json("tokens", "list")["tokens"]] == ["tok-setup"]
        assert again.serving.stdout is not None
        line = [again.serving.stdout.readline() for _ in range(2)][1]
        assert "#code=" not in line
        assert f"web --data-dir {data}" in line
