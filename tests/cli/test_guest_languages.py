"""The samples in Rust and AssemblyScript, built and run where their compilers are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from checks import npm
from checks.tree import ROOT
from tests.cli.served import FOUND_BY, Done, command
from tests.cli.test_guest_samples import NOTE, Records

GUESTS = ROOT / "guests"
SECONDS = 240.0
TARGETS = ("wasm32-wasip1", "wasm32-wasi")
ASC = ("-O", "--exportStart", "_start", "--runtime", "stub", "--use", "abort=")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOUND_BY, "BASCULE_TASK"):
        monkeypatch.delenv(name, raising=False)


def built(folder: Path, *words: str | Path) -> None:
    subprocess.run(words, cwd=folder, check=True, timeout=SECONDS)


def rust_target() -> str:
    """Return the target that Rust is installed for."""
    rustc = shutil.which("rustc")
    for target in TARGETS if rustc else ():
        ask = ("rustc", "--print", "target-libdir", "--target", target)
        found = subprocess.run(ask, check=False, capture_output=True, encoding="utf-8")
        if found.returncode == 0 and Path(found.stdout.strip()).is_dir():
            return target
    pytest.skip("no Rust with a target for WASI on this machine")


def rust(name: str, module: Path) -> None:
    options = ("--edition", "2021", "-O", "-C", "strip=symbols", "-o", module)
    built(GUESTS / "rust", "rustc", "--target", rust_target(), *options, f"{name}.rs")


def assemblyscript(name: str, module: Path) -> None:
    folder, cache = GUESTS / "assemblyscript", ROOT / ".cache" / "assemblyscript"
    compiler = cache / "node_modules" / "assemblyscript" / "bin" / "asc.js"
    npm.install(folder, cache, compiler)
    built(folder, npm.NODE, compiler, f"{name}.ts", "--outFile", module, *ASC)


LANGUAGES = {"rust": rust, "assemblyscript": assemblyscript}


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_samples_of_a_language_greet_and_call_a_tool(language: str, tmp_path: Path):
    module = tmp_path / "guest.wasm"

    def run(name: str, *words: str) -> Done:
        LANGUAGES[language](name, module)
        return command("run", str(module), *words)

    greeting = run("hello")
    assert greeting.code == 0, greeting.err
    assert greeting.out.startswith("Hello from ")
    assert greeting.err == "info: the guest has greeted\n"
    records = tmp_path / "mcp.d"
    records.mkdir()
    called = run("call", *Records(records).words)
    assert called.code == 0, called.err
    assert NOTE in called.out
