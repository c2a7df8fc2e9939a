"""What shares no PostgreSQL runs without its driver, and imports none where there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.served import command, process
from tests.flow.up_process import run, serving, serving_by

DSN = "postgresql://db.example/bascule"
SERVERS = "/admin/api/mcp/servers"


@pytest.fixture
def without(tmp_path: Path) -> str:
    """A folder for PYTHONPATH with which there is no driver."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\nsys.modules['asyncpg'] = None\n", encoding="utf-8"
    )
    return str(folder)


@pytest.mark.requirement("registry:postgres:extra")
async def test_a_process_on_its_own_needs_no_driver(without: str, tmp_path: Path):
    for number, words in enumerate([("up",), ("registry", "serve")]):
        data = tmp_path / str(number)
        async with serving_by(words, data, PYTHONPATH=without) as up:
            assert (await up.ask("GET", SERVERS, token=up.admin))[0] == 200
            for line in ("servers list", "tokens list", "secrets list", "doctor"):
                done = process(*line.split(), "--data-dir", str(data), PYTHONPATH=without)
                assert done.code == 0, done.err
            assert await up.end() == 0


@pytest.mark.requirement("registry:postgres:extra")
@pytest.mark.parametrize("words", ["up", "registry serve"])
def test_a_dsn_without_a_driver_says_what_to_install(words: str, without: str, tmp_path: Path):
    data = ("--data-dir", str(tmp_path / "data"), "--port", "0")
    done = process(*words.split(), "--dsn", DSN, *data, PYTHONPATH=without)
    assert done.code == 1
    assert "pip install 'bascule[scale]'" in done.err


@pytest.mark.parametrize("words", [["--help"], ["up", "--help"], ["registry", "serve", "--help"]])
def test_help_imports_no_driver(words: list[str]):
    program = (
        "import sys\n"
        "from bascule.cli.main import run\n"
        "try:\n    run(sys.argv[1:])\n"
        "except SystemExit:\n"
        "    assert not {'asyncpg', 'google.protobuf', 'grpc'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True)


def test_a_password_on_the_command_line_is_refused(tmp_path: Path):
    dsn = "postgresql://u:hunter2@db.example/bascule"
    done = command("up", "--dsn", dsn, "--data-dir", str(tmp_path))
    assert (done.code, "has a password" in done.err, "hunter2" in done.err) == (1, True, False)


async def test_a_directory_that_was_shared_is_not_begun_anew_unasked(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "shared-registry").write_text(
        '{"where": "PostgreSQL at db.example/bascule", "store_id": "abc"}', encoding="utf-8"
    )
    code, _, err = await run("up", "--port", "0", "--data-dir", str(data))
    assert code == 1
    assert "is in PostgreSQL at db.example/bascule: give BASCULE_DSN" in err
    async with serving(data, "--empty", "--new-registry") as up:
        assert await up.end() == 0
    async with serving(data, "--empty") as up:
        assert await up.end() == 0
