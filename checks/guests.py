"""The C guests of ``guests/``: built with zig, and compared with the modules that are committed.

``python -m checks.guests`` compares, where zig is installed; with ``--write`` (``make guests``) the
builds take the place of the committed modules. zig is that of ``guests/requirements.lock``, in an
environment of its own. A build repeats byte for byte: nothing of the machine is in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from checks.tree import ROOT, report

GUESTS = ROOT / "guests"
ZIG = ROOT / ".venv-guests" / "bin" / "python-zig"
CACHE = ROOT / ".cache" / "zig"
MOST_BYTES = 8_192
_SECONDS = 240.0
_OPTIONS = (
    *("-target", "wasm32-freestanding", "-Os", "-s", "-nostdlib", "-ffreestanding"),
    *("-mbulk-memory", "-Wall", "-Wextra", "-Werror"),
    *("-Wl,--no-entry", "-Wl,--export-table", "-Wl,-z,stack-size=65536"),
)


def main(arguments: Sequence[str]) -> int:
    """Build every guest and compare it with the committed module, or write it there."""
    if not ZIG.exists():
        print("zig is not installed: the modules of guests/ were not compared (make guests)")
        return 0
    sources = sorted(GUESTS.glob("*.c"))
    found: list[str] = []
    for source in sources:
        module = source.with_suffix(".wasm")
        try:
            built = build(source)
        except subprocess.CalledProcessError as error:
            found.append(f"guests/{source.name}: {error.stderr}")
            continue
        if len(built) > MOST_BYTES:
            found.append(f"guests/{module.name}: {len(built)} bytes, at most {MOST_BYTES}")
        if "--write" in arguments:
            module.write_bytes(built)
        elif not module.exists() or module.read_bytes() != built:
            found.append(f"guests/{module.name}: not what its source gives: run `make guests`")
    known = {source.stem for source in sources}
    orphans = [path.name for path in GUESTS.glob("*.wasm") if path.stem not in known]
    return report(found + [f"guests/{name}: has no source" for name in orphans])


def build(source: Path) -> bytes:
    """Return the module of a source; raise CalledProcessError with what the compiler says."""
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(CACHE), "ZIG_LOCAL_CACHE_DIR": str(CACHE)}
    with TemporaryDirectory() as folder:
        module = Path(folder) / "guest.wasm"
        subprocess.run(
            [ZIG, "cc", *_OPTIONS, "-o", module, source.name],
            cwd=source.parent,
            env={**os.environ, **caches},
            check=True,
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
        )
        return module.read_bytes()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
