"""The mutation check: changes the policy, the bridge and the budgets, and sees who notices.

``python -m checks.mutation`` takes a seeded sample of the changes of each module (``--each 0``:
all of them, as ``make soak`` does), runs the tests that witness the module against each, and
writes what survived to ``bench/results/mutation.md``. It reports and does not judge: a survivor
is either worth a test, or changes nothing that anyone can see and is listed with the reason in
``checks/mutation-equivalent.txt``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from bascule.clock import SYSTEM_CLOCK
from checks.mutants import changes_of, install
from checks.tree import ROOT

SOURCE = ROOT / "src"
RESULT = ROOT / "bench" / "results" / "mutation.md"
EQUIVALENT = ROOT / "checks" / "mutation-equivalent.txt"
SEED = 13
#: For the tests of one change; each test has a limit of its own.
LIMIT_SECONDS = 900.0
#: The tests that witness each part.
WITNESSES: dict[str, tuple[str, ...]] = {
    "bascule/policy": ("tests/policy", "tests/node/bridge"),
    "bascule/node/bridge": ("tests/node/bridge", "tests/flow/test_library.py", "tests/audit"),
    "bascule/loop/budgets.py": (
        "tests/loop/test_spending.py",
        "tests/loop/test_turns.py",
        "tests/doors/chat/test_budgets.py",
    ),
}
#: What takes long to import and is not changed: a process for each change is forked with it.
PRELOADED = ("aiohttp", "anyio", "hypothesis", "inline_snapshot", "msgspec", "openai", "starlette")
OPTIONS = (
    *("-x", "-q", "-n0", "--timeout=120", "-p", "no:randomly", "-p", "no:cacheprovider"),
    *("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
)
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    file: str
    number: int
    line: int
    what: str
    source: str

    @property
    def module(self) -> str:
        """Return the name by which the module is imported."""
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def key(self) -> str:
        """Return what names the change as long as the line reads the same."""
        return f"{self.file}: {self.source}: {self.what}"


@dataclass(frozen=True, slots=True)
class Trial:
    """How the tests took a change."""

    mutant: Mutant
    verdict: str  # killed, survived, timed out (which is noticed, too) or not run


def main(words: Sequence[str]) -> int:
    """Read the words of the command line, and run the check."""
    parser = argparse.ArgumentParser(prog="checks.mutation")
    parser.add_argument("--each", type=int, default=6, help="changes of each module; 0 for all")
    parser.add_argument("--minutes", type=float, default=60, help="no new change after so long")
    parser.add_argument("--workers", type=int, default=1, help="how many run side by side")
    asked = parser.parse_args(words)
    return check(asked.each, minutes=asked.minutes, workers=asked.workers)


def check(each: int, *, minutes: float, workers: int) -> int:
    """Try the changes and write the report; exit code 1 if tests fail without any change."""
    until = SYSTEM_CLOCK.monotonic() + minutes * 60
    for name in PRELOADED:
        import_module(name)
    for tests in WITNESSES.values():
        unchanged = started(None, [tests])
        unchanged.join()
        if unchanged.exitcode:
            print(f"the tests fail without any change: {' '.join(tests)}")
            return 1
    trials = list(tried(sampled(each), until, workers))
    RESULT.write_text(page(trials, read_equivalent(EQUIVALENT)), "utf-8")
    return 0


def tried(mutants: Iterable[Mutant], until: float, workers: int) -> Iterator[Trial]:
    """Try changes, several at a time; after ``until`` no further one is begun."""
    waiting, running = deque(mutants), dict[BaseProcess, tuple[Mutant, float]]()
    while waiting or running:
        now = SYSTEM_CLOCK.monotonic()
        while waiting and now > until:
            yield Trial(waiting.popleft(), "not run")
        while waiting and len(running) < workers:
            mutant = waiting.popleft()
            running[started(mutant, stages(mutant.file))] = mutant, now + LIMIT_SECONDS
        wait([process.sentinel for process in running], timeout=1)
        for process, (mutant, limit) in list(running.items()):
            verdict = _verdict(process, limit)
            if verdict is not None:
                del running[process]
                print(f"{verdict:<10} {mutant.file}:{mutant.line} {mutant.what}", flush=True)
                yield Trial(mutant, verdict)


def _verdict(process: BaseProcess, limit: float) -> str | None:
    if not process.is_alive():
        return "killed" if process.exitcode else "survived"
    if SYSTEM_CLOCK.monotonic() < limit:
        return None
    process.kill()
    return "timed out"


def started(mutant: Mutant | None, some: Sequence[Sequence[str]]) -> BaseProcess:
    """Fork a process that runs tests, one set after the other, until one fails."""
    if mutant is not None and mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} was imported before it could be changed")
    process = FORK.Process(target=_run, args=(mutant, some))
    process.start()
    return process


def _run(mutant: Mutant | None, some: Sequence[Sequence[str]]) -> None:
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    if mutant is not None:
        install(mutant.module, mutant.number)
    os.chdir(ROOT)
    failed = any(pytest.main([*OPTIONS, *tests]) != 0 for tests in some)
    os._exit(int(failed))


def stages(file: str) -> list[Sequence[str]]:
    """Return what to run: the tests of the module's name, where most changes end, then the rest."""
    tests = next(tests for place, tests in WITNESSES.items() if file.startswith(place))
    name = Path(file).stem
    named = [ROOT / folder / f"test_{name}.py" for folder in tests]
    named.append(ROOT / "tests" / "laws" / f"test_{name}_laws.py")
    own = [str(path.relative_to(ROOT)) for path in named if path.is_file()]
    return [own, tests] if own else [tests]


def sampled(each: int) -> list[Mutant]:
    """Return a seeded sample of the changes of each module, mixed so that time cuts fairly."""
    dice = random.Random(SEED)  # noqa: S311 - a sample, not a secret
    chosen: list[Mutant] = []
    for path in _modules():
        mutants = list(_mutants(path))
        chosen += mutants if not each else dice.sample(mutants, min(each, len(mutants)))
    dice.shuffle(chosen)
    return chosen


def _modules() -> Iterable[Path]:
    for place in WITNESSES:
        path = SOURCE / place
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def _mutants(path: Path) -> Iterable[Mutant]:
    lines = path.read_text("utf-8").splitlines()
    for number, change in enumerate(changes_of(path)):
        text = lines[change.line - 1].strip()
        yield Mutant(str(path.relative_to(SOURCE)), number, change.line, change.what, text)


def read_equivalent(path: Path) -> dict[str, str]:
    """Read the changes that nothing can notice: a line of the change, then one with the reason."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("#")]
    return {key: why.strip() for key, why in zip(lines[::2], lines[1::2], strict=True)}


def page(trials: Sequence[Trial], equivalent: dict[str, str]) -> str:
    """Show a run on one page: the counts of each module, then what survived."""
    survived = sorted(
        (trial.mutant for trial in trials if trial.verdict == "survived"),
        key=lambda mutant: (mutant.file, mutant.line),
    )
    known = [mutant for mutant in survived if mutant.key in equivalent]
    open_ones = [mutant for mutant in survived if mutant.key not in equivalent]
    return "\n".join([
        "# Mutation",
        "",
        f"Made by `python -m checks.mutation` (seed {SEED}): {len(trials)} changes of the source.",
        "A change that no test notices has survived; `make soak` tries every change there is.",
        "",
        *_table(trials),
        "",
        f"## Survived: {len(open_ones)}",
        "",
        *(_line(mutant) for mutant in open_ones),
        "",
        f"## Equivalent: {len(known)}",
        "",
        *(f"{_line(mutant)}: {equivalent[mutant.key]}" for mutant in known),
        "",
    ])  # fmt: skip


VERDICTS = ("killed", "timed out", "survived", "not run")


def _table(trials: Sequence[Trial]) -> list[str]:
    counts = Counter((trial.mutant.file, trial.verdict) for trial in trials)
    counts += Counter(("all", trial.verdict) for trial in trials)
    files = [*sorted({trial.mutant.file for trial in trials}), "all"]
    rows = [
        f"| `{file}` | " + " | ".join(str(counts[file, word]) for word in VERDICTS) + " |"
        for file in files
    ]
    return [f"| module | {' | '.join(VERDICTS)} |", "|---|---:|---:|---:|---:|", *rows]


def _line(mutant: Mutant) -> str:
    return f"- `{mutant.file}:{mutant.line}` {mutant.what}: `{mutant.source}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
