"""``bascule up`` started again and again, over the package that ``PYTHONPATH`` names.

``python -m bench.start_client``: each line it is given is one start up to the answer of the first
call, answered with what that took; see ``rounds``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.site import make_site
from bench.up import start


async def main() -> None:
    """Start it once, which makes the registry, and then as often as told."""
    with TemporaryDirectory() as folder:
        site = await make_site(Path(folder))
        await start(site)
        print("{}", flush=True)
        for _ in sys.stdin:
            print(json.dumps(asdict(await start(site))), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
