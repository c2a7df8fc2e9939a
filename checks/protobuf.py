"""The messages of ``src/bascule/wire/pb``: made from ``proto/``, linted, and never broken.

``python -m checks.protobuf`` compares what is committed with what the sources give, lints these,
and looks whether they break who speaks what is in ``proto/released.binpb``. With ``--write``
(``make generate``) it makes the messages; with ``--release`` the sources become what must not be
broken. The tools are those of ``proto/requirements.lock``, in an environment of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from checks.tree import ROOT, report

PROTO = ROOT / "proto"
MESSAGES = ROOT / "src" / "bascule" / "wire" / "pb"
RELEASED = "released.binpb"
BIN = ROOT / ".venv-proto" / "bin"
_SECONDS = 120.0
#: Where the generator believes the messages to be, and where they are.
_IMAGINED = re.compile(
    r"(?<=from )bascule\.registry\.v1(?= import)|(?<=')bascule\.registry\.v1(?=\.\w+_pb2')"
)
_PLACE = "bascule.wire.pb"
#: A type that the generator leaves open, which a strict type checker minds wherever it is used.
_OPEN, _CLOSED = re.compile(r"(?<!as )\b_Mapping(?!\[)"), "_Mapping[str, object]"


def main(arguments: Sequence[str]) -> int:
    """Check the sources and the messages, or write what is made from the sources."""
    if "--write" in arguments:
        return _write(generated(PROTO))
    if "--release" in arguments:
        image = str(PROTO / RELEASED)
        return _run(PROTO, "buf", "build", ".", "--exclude-source-info", "-o", image)
    return max(check(PROTO), report(stale(generated(PROTO), MESSAGES)), load(MESSAGES))


def check(proto: Path) -> int:
    """Lint the sources in a folder, and compare them with what was released there."""
    return max(
        _run(proto, "buf", "lint", "."),
        _run(proto, "buf", "format", "--diff", "--exit-code", "."),
        _run(proto, "buf", "breaking", ".", "--against", RELEASED),
    )


def load(messages: Path) -> int:
    """Import messages with the oldest runtime that is supported; a warning is a failure."""
    modules = sorted(f"{_PLACE}.{path.stem}" for path in messages.glob("*_pb2.py"))
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    return _run(ROOT / "src", "python", "-W", "error", "-c", program, *modules)


def generated(proto: Path) -> Mapping[str, str]:
    """Return the files that the sources in a folder give, by name."""
    with TemporaryDirectory() as folder:
        sources = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
        subprocess.run(
            [BIN / "python", "-m", "grpc_tools.protoc", "-I.", *_outputs(folder), *sources],
            cwd=proto,
            check=True,
            timeout=_SECONDS,
        )
        made = sorted(Path(folder).rglob("*_pb2.py*"))
        return {path.name: _mended(path.read_text(encoding="utf-8")) for path in made}


def _mended(text: str) -> str:
    return _OPEN.sub(_CLOSED, _IMAGINED.sub(_PLACE, text))


def stale(made: Mapping[str, str], folder: Path) -> list[str]:
    """Name the files of a folder that are missing, differ from what is made, or have no source."""
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*_pb2.py*")}
    wrong = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    return [f"{folder.name}/{name}: not what proto/ gives: run `make generate`" for name in wrong]


def _outputs(folder: str) -> tuple[str, str]:
    return f"--python_out={folder}", f"--pyi_out={folder}"


def _write(made: Mapping[str, str]) -> int:
    for path in MESSAGES.glob("*_pb2.py*"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        path = MESSAGES / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


def _run(folder: Path, tool: str, *words: str) -> int:
    """Run a tool in a folder; what it finds it prints."""
    return subprocess.run(
        [BIN / tool, *words], cwd=folder, check=False, timeout=_SECONDS
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
