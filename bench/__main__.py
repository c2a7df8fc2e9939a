"""``make bench``: run the benchmarks, print their tables, keep the figures.

Each benchmark writes ``bench/results/<name>.json``; ``bench/results/README.md`` is made from
all the figures that are kept there, also those of benchmarks not run this time. It begins with
every figure that has a goal. ``profile`` before names of paths profiles them instead.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from bench.against import compare
from bench.machine import ROOT, Load, compile_bytecode
from bench.profiles import PATHS, write
from bench.table import Row, markdown, missed, plain

RESULTS = Path(__file__).parent / "results"
PERFORMANCE = ROOT / "docs" / "performance.md"
#: Benchmarks of what a call costs: their goals stand in docs/performance.md.
OF_CALLS = ("stdio", "http", "up", "gateway", "chat", "idle", "soak_calls", "ledger", "approvals")
BEGIN = "<!-- goals: made by `make bench` from bench/results -->"
END = "<!-- end of goals -->"


@dataclass(frozen=True)
class Benchmark:
    """A module of ``bench`` that has a ``NAME`` and a ``run``."""

    name: str
    title: str
    run: Callable[[], list[Row]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, or everything. A missed goal is shown, not an error."""
    found = discover()
    known = f"{', '.join(found)}; or profile and: {', '.join(PATHS)}"
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", help=f"which ones: {known}")
    parser.add_argument("--against", metavar="REF", help="compare with the package at a commit")
    options = parser.parse_args(arguments)
    profiling = options.names[:1] == ["profile"]
    choice: Iterable[str] = PATHS if profiling else found
    wanted: list[str] = options.names[profiling:] or list(choice)
    if unknown := [name for name in wanted if name not in choice]:
        parser.error(f"nothing named {', '.join(unknown)}; there are: {', '.join(choice)}")
    compile_bytecode()
    if options.against:
        print(plain(compare(options.against)))
    elif profiling:
        for path in write(wanted):
            print(f"kept in bench/results/{path.name}", flush=True)
    else:
        measure([found[name] for name in wanted])
    return 0


def measure(benchmarks: Sequence[Benchmark]) -> None:
    """Run the benchmarks one after the other, and renew the page of all figures."""
    rows = [row for benchmark in benchmarks for row in run_one(benchmark)]
    (RESULTS / "README.md").write_text(combined(RESULTS), encoding="utf-8")
    page = PERFORMANCE.read_text(encoding="utf-8")
    PERFORMANCE.write_text(with_table(page, goals_of_calls(RESULTS)), encoding="utf-8")
    short = missed(rows)
    print(f"{len(rows)} figures, {len(short)} short of their goal; kept in bench/results/")


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
    load = Load()
    rows = benchmark.run()
    kept = {
        "name": benchmark.name,
        "title": benchmark.title,
        "date": date.today().isoformat(),  # noqa: DTZ011 - the day on this machine is what is meant
        "machine": load.facts(),
        "rows": [asdict(row) for row in rows],
    }
    print(plain(rows), measured_on(kept), sep="\n", end="\n\n", flush=True)
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{benchmark.name}.json").write_text(text, encoding="utf-8")
    return rows


def combined(results: Path) -> str:
    """Make one page from every set of figures kept in ``results``."""
    figures = list(kept_in(results))
    parts = [
        "# Figures",
        "Made by `make bench`, with one JSON file per benchmark beside it.",
        "How they are measured and what they mean: [performance](../../docs/performance.md).",
        "## Goals",
        markdown(list(with_goals(figures))),
        *(part for kept in figures for part in section(kept)),
        *beside(results),
    ]
    return "\n\n".join(parts) + "\n"


def kept_in(results: Path) -> Iterator[dict[str, Any]]:
    """Read every set of figures, by name."""
    for path in sorted(results.glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if "rows" in kept:
            yield kept


def goals_of_calls(results: Path) -> str:
    """The table of the figures of calls that have a goal."""
    found = {kept["name"]: kept for kept in kept_in(results)}
    return markdown(list(with_goals(found[name] for name in OF_CALLS if name in found)))


def with_table(page: str, table: str) -> str:
    """Put a table between the two marks of a page."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no table between {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{table}\n{end}{after}"


def with_goals(figures: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Every figure that has a goal, named by its benchmark."""
    for kept in figures:
        for row in (Row(**row) for row in kept["rows"]):
            if row.goal is not None:
                yield replace(row, name=f"{kept['name']}: {row.name}")


def section(kept: dict[str, Any]) -> list[str]:
    """Show one set of figures: heading, where it was measured, table."""
    shown = markdown([Row(**row) for row in kept["rows"]])
    return [f"## {kept['name']}", f"{kept['title']} {measured_on(kept)}", shown]


def measured_on(kept: dict[str, Any]) -> str:
    """Say when and on what; ``others`` is what work that is not ours took of all cores."""
    where = kept["machine"]
    others = f", others {where['others']} % of the cores" if "others" in where else ""
    return (
        f"Measured {kept['date']}: Python {where['python']}, {where['system']}, "
        f"{where['cores']} cores, load {where['load']}{others}, bytecode {where['bytecode']}."
    )


def beside(results: Path) -> Iterator[str]:
    """Point to the pages that others write."""
    if (results / "soak.md").exists():
        yield "The long forms of the tests: [soak.md](soak.md)."
    if profiles := sorted(results.glob("profile-*.md")):
        links = ", ".join(
            f"[{path.stem.removeprefix('profile-')}]({path.name})" for path in profiles
        )
        yield f"Profiles of the path of a call: {links}."


if __name__ == "__main__":
    sys.exit(main())
