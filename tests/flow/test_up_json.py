"""``bascule up --json``: what the process says, one object a line, for whoever starts it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.flow.up_process import record, run, start


async def said(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    async with asyncio.timeout(20):
        return json.loads(await process.stdout.readline())


async def ended(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(15):
        return await process.wait()


@pytest.mark.requirement("cli:json", "cli:up")
async def test_every_announcement_is_one_line_of_json(tmp_path: Path):
    folder, data = tmp_path / "mcp.d", tmp_path / "data"
    folder.mkdir()
    (folder / "a.toml").write_text(record("a"), encoding="utf-8")
    (folder / "broken.toml").write_text("server_id = 1\n", encoding="utf-8")
    words = ("up", "--port", "0", "--data-dir", str(data), "--registry-dir", str(folder), "--json")
    process = await start(*words, "--empty")
    try:
        problems = await said(process)
        assert problems["event"] == "problems"
        assert problems["problems"][0].startswith("broken.toml: ")
        serving = await said(process)
        setup = data / "setup-token"
        assert serving == {
            "event": "serving",
            "url": (data / "url").read_text(encoding="utf-8").strip(),
            "mcp_url": (data / "url").read_text(encoding="utf-8").strip() + "/mcp",
            "page_url": (data / "url").read_text(encoding="utf-8").strip() + "/admin/",
            "setup_token": setup.read_text(encoding="utf-8").strip(),
            "setup_file": str(setup),
        }
        (folder / "broken.toml").unlink()
        assert await said(process) == {"event": "problems", "problems": []}
        assert await ended(process) == 0
        assert await said(process) == {"event": "ended"}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.requirement("cli:json")
async def test_a_start_that_fails_and_a_trial_are_one_document_each(tmp_path: Path):
    folder, data = tmp_path / "mcp.d", ("--data-dir", str(tmp_path / "data"))
    code, out, err = await run("up", *data, "--host", "0.0.0.0", "--json")  # noqa: S104 - refused
    assert code == 1
    assert "other machines" in json.loads(out)["error"]["message"]
    assert err.endswith(": --tls-certificate and --tls-key, or --insecure\n")
    code, out, err = await run("up", *data, "--port", "99999", "--json")
    assert code == 1
    assert json.loads(out)["error"]["details"]["problems"] == [
        "server.port: must be at most 65535 (from --port)"
    ]
    folder.mkdir()
    (folder / "a.toml").write_text(record("a"), encoding="utf-8")
    code, out, err = await run("up", *data, "--registry-dir", str(folder), "--dry-run", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["diff"][0] == "+ server a"
    assert (document["problems"], document["warnings"]) == ([], [])


async def test_a_data_directory_that_is_none_is_named(tmp_path: Path):
    place = tmp_path / "file"
    place.touch()
    for words in (("up", "--port", "0"), ("tokens", "create", "--role", "viewer")):
        code, out, err = await run(*words, "--data-dir", str(place), "--json")
        assert (code, err) == (1, f"error: {place}: is not a directory\n")
        assert json.loads(out)["error"]["message"] == f"{place}: is not a directory"


@pytest.mark.requirement("security:lists-close-one-another")
async def test_the_start_says_what_setting_one_list_closes(tmp_path: Path):
    words = ("up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--json", "--empty")
    process = await start(*words, BASCULE_NODE_EXECUTABLES="uvx")
    try:
        problems = await said(process)
        assert problems["event"] == "problems"
        [told] = problems["problems"]
        assert told.startswith("[node] executables is set, so records may read no variable but")
        assert told.endswith("module; list what they may in [node] variables and files and guests")
        assert (await said(process))["event"] == "serving"
        assert await ended(process) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
