"""What the page adds to the start of ``bascule up``: with it and without, in turn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import page_less
from bench.site import make_site
from bench.table import Row, at_most
from bench.up import Start, start

STARTS = 16
#: ``-P``: the folder of the script has names of its own that must not be found first.
PAGELESS = ("-P", str(Path(page_less.__file__)))


async def starts() -> list[Row]:
    """Compare starts up to the first call."""
    unknown = [name for name in page_less.ABSENT if find_spec(name) is None]
    assert not unknown, f"bench/page_less.py leaves out what does not exist: {unknown}"
    whole: list[Start] = []
    without: list[Start] = []
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        await start(site)  # the first one makes the registry
        for number in range(STARTS):
            if number % 2:
                whole.append(await start(site))
            without.append(await start(site, program=PAGELESS))
            if not number % 2:
                whole.append(await start(site))
    pairs = list(zip(whole, without, strict=True))
    cpu = median(one.cpu / other.cpu for one, other in pairs)
    more = median(one.rss - other.rss for one, other in pairs)
    return [
        at_most("start: CPU to the first call, with / without the page", cpu, "x", 1.1),
        at_most("start: memory (RSS), more than without the page", more, "MB", 3),
        Row("start: CPU to the first call", median(s.cpu for s in whole), "s"),
        Row("the same without the page", median(s.cpu for s in without), "s"),
    ]
