"""The receivers on the page of the approval hook check and answer what Bascule asks."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from bascule.approval_hook import signed_headers
from bascule.clock import SYSTEM_CLOCK
from checks.npm import NODE
from checks.tree import ROOT
from tests.control.hook_site import KEY, PLAIN
from tests.waits import blocked_until

PAGES = "\n".join(
    page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("approvals*.md")
)
BLOCKS = re.compile(r"^```(py|js)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def block(language: str, word: str) -> str:
    [found] = [text for kind, text in BLOCKS.findall(PAGES) if kind == language and word in text]
    return found


def body(**fields: object) -> bytes:
    return json.dumps({**PLAIN, **fields}).encode()


def signed(data: bytes, key: bytes = KEY, late: float = 0.0) -> dict[str, str]:
    return signed_headers(key, "apr-1", data, SYSTEM_CLOCK.now() - late)


@contextmanager
def receiver() -> Generator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "HOOK_KEY": KEY.hex(), "HOOK_PORT": str(port)}
    program = [sys.executable, "-c", block("py", "import Unverified, verify")]
    with subprocess.Popen(program, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            blocked_until(lambda: process.poll() is not None or _listens(port))
            yield port
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def answered(port: int, data: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", "/ask", data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_pages_receiver_in_python_answers_and_refuses():
    small, other = body(arguments={"name": "tmp-1"}), body(arguments={"name": "welcome"})
    with receiver() as port:
        for data, decision in ((small, "approve"), (other, "ask")):
            status, answer = answered(port, data, signed(data))
            said = {"decision": decision, "id": "apr-1", "digest": "d1"}
            assert (status, json.loads(answer)) == (200, said)
        for headers in ({}, signed(other), signed(small, bytes(32)), signed(small, late=400)):
            assert answered(port, small, headers)[0] == 401


def test_the_pages_lines_in_javascript_tell_the_same():
    lines = block("js", "createHmac")
    program = f"""
        const {{ createHmac, timingSafeEqual }} = require("node:crypto");
        const cases = JSON.parse(require("node:fs").readFileSync(0));
        console.log(JSON.stringify(cases.map(([key, timestamp, id, signature, text]) => {{
            const body = Buffer.from(text);
            {lines}
            return genuine;
        }})));
    """
    data = body()
    cases = [
        (data, signed(data)),
        (data, signed(data, late=400)),
        (data, signed(data, bytes(32))),
        (body(tool="other"), signed(data)),
        (data, {**signed(data), "X-Bascule-Signature": "v1="}),
        (data, {**signed(data), "X-Bascule-Approval": "apr-2"}),
    ]
    given = json.dumps([[KEY.hex(), *headers.values(), data.decode()] for data, headers in cases])
    done = subprocess.run(
        [NODE, "-e", program],
        input=given,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == [True, False, False, False, False, False]


@pytest.mark.parametrize("word", ["X-Bascule-Timestamp", "X-Bascule-Approval", "hook-key"])
def test_the_page_names_what_a_receiver_needs(word: str):
    assert word in PAGES
