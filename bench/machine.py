"""The machine under the figures: how busy others keep it, one core of it, and compiled bytecode."""

from __future__ import annotations

import compileall
import os
import platform
import resource
import sysconfig
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

Facts = dict[str, str | int | float]


class Load:
    """How busy the machine is from now on, with our own work taken out."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._busy, self._all = _ticks()
        self._own = _own_seconds()

    def facts(self) -> Facts:
        """Say what a reader needs to weigh a figure, and nothing that names the machine."""
        busy, all_ = _ticks()
        others = (busy - self._busy) / _TICKS - (_own_seconds() - self._own)
        passed = max((all_ - self._all) / _TICKS, 1 / _TICKS)
        return {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count() or 0,
            "load": round(self._load, 1),
            "others": round(100 * max(0.0, others) / passed),
            "bytecode": "compiled",
        }


def _ticks() -> tuple[int, int]:
    """Ticks in which a core was busy, and all of them."""
    with Path("/proc/stat").open(encoding="ascii") as lines:
        user, nice, system, idle, waiting, irq, soft, *_ = map(int, lines.readline().split()[1:])
    busy = user + nice + system + irq + soft
    return busy, busy + idle + waiting


def _own_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def one_core() -> int:
    """The core on which clients and servers are measured."""
    return max(os.sched_getaffinity(0))


@contextmanager
def on_cores(cores: set[int]) -> Generator[None]:
    """Stay on these cores while the block runs, with every process that is started in it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores & before or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def compile_bytecode(source: Path = ROOT / "src") -> None:
    """Compile a package, the benchmarks and the libraries, so that no run pays for another's."""
    for folder in (source, ROOT / "bench", sysconfig.get_path("purelib")):
        compileall.compile_dir(str(folder), quiet=2)


def cpu_seconds(pids: Iterable[int]) -> float:
    """What all threads of these processes have used, to the nanosecond."""
    return sum(used for pid in pids for used in _threads(pid)) / 1e9


def _threads(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended since
            yield int(task.read_text(encoding="ascii").split()[0])


def family() -> set[int]:
    """This process and all that came of it: a client and its servers."""
    return descendants(os.getpid())


def descendants(pid: int) -> set[int]:
    """A process and all that came of it."""
    parents = dict(_parents())
    found = {pid}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # likewise
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
            yield int(stat.parent.name), int(fields[1])


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds (RSS)."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def proportional(pid: int) -> int:
    """The same with what it shares counted by its share (PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def disk_under(path: Path) -> str:
    """Name the file system that a path is on: its kind, and the device where there is one."""
    here, found = path.resolve(), (Path("/"), "unknown")
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        place = Path(before.split()[4])
        kind, device, *_ = after.split()
        if here.is_relative_to(place) and len(place.parts) >= len(found[0].parts):
            found = place, f"{kind} on {device}" if device.startswith("/dev/") else kind
    return found[1]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
