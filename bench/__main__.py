"""``make bench``: run the benchmarks, print their tables, keep the figures.

Each benchmark writes ``bench/results/<name>.json``; ``bench/results/README.md`` is made from
all the figures that are kept there, also those of benchmarks not run this time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench.against import compare
from bench.table import Row, markdown, missed, plain

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Benchmark:
    """A module of ``bench`` that has a ``NAME`` and a ``run``."""

    name: str
    title: str
    run: Callable[[], list[Row]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, or everything. A missed goal is shown, not an error."""
    found = discover()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", help=f"which ones: {', '.join(found) or 'none yet'}")
    parser.add_argument("--against", metavar="REF", help="compare with the package at a commit")
    options = parser.parse_args(arguments)
    if options.against:
        print(plain(compare(options.against)))
        return 0
    wanted: list[str] = options.names or list(found)
    if unknown := [name for name in wanted if name not in found]:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(found)}")
    rows = [row for name in wanted for row in run_one(found[name])]
    (RESULTS / "README.md").write_text(combined(RESULTS), encoding="utf-8")
    short = missed(rows)
    print(f"{len(rows)} figures, {len(short)} short of their goal; kept in bench/results/")
    return 0


def discover() -> dict[str, Benchmark]:
    """Find the benchmarks of this package, by name."""
    folder = str(Path(__file__).parent)
    names = sorted(entry.name for entry in pkgutil.iter_modules([folder]))
    modules = [importlib.import_module(f"bench.{name}") for name in names if name != "__main__"]
    benchmarks = [
        Benchmark(module.NAME, (module.__doc__ or module.NAME).splitlines()[0], module.run)
        for module in modules
        if hasattr(module, "NAME") and hasattr(module, "run")
    ]
    return {benchmark.name: benchmark for benchmark in benchmarks}


def run_one(benchmark: Benchmark) -> list[Row]:
    """Run one benchmark, print its table and keep its figures."""
    print(f"== {benchmark.name}: {benchmark.title}", flush=True)
    rows = benchmark.run()
    print(plain(rows), end="\n\n", flush=True)
    kept = {
        "name": benchmark.name,
        "title": benchmark.title,
        "date": date.today().isoformat(),  # noqa: DTZ011 - the day on this machine is what is meant
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{benchmark.name}.json").write_text(text, encoding="utf-8")
    return rows


def machine() -> dict[str, str | int | float]:
    """Say what a reader needs to weigh a figure, and nothing that names the machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 1),
        "bytecode": "not written" if sys.dont_write_bytecode else "compiled",
    }


def combined(results: Path) -> str:
    """Make one page from every set of figures kept in ``results``."""
    parts = [
        "# Figures",
        "Made by `make bench`, with one JSON file per benchmark beside it.",
    ]
    for path in sorted(results.glob("*.json")):
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "rows" in kept:
            parts += section(kept)
    if (results / "soak.md").exists():
        parts.append("The long forms of the tests: [soak.md](soak.md).")
    return "\n\n".join(parts) + "\n"


def section(kept: dict[str, Any]) -> list[str]:
    """Show one set of figures: heading, where it was measured, table."""
    where = kept["machine"]
    measured = (
        f"{kept['title']} Measured {kept['date']}: Python {where['python']}, {where['system']}, "
        f"{where['cores']} cores, load {where['load']}, bytecode {where['bytecode']}."
    )
    return [f"## {kept['name']}", measured, markdown([Row(**row) for row in kept["rows"]])]


if __name__ == "__main__":
    sys.exit(main())
