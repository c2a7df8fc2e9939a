"""The table of docs/isolation.md: what a probe could do at each level, on this machine.

``python -m tests.process.isolation_table`` writes it anew; it takes half a minute.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bascule.node.pool.process.confinement import landlock
from tests.process import isolation_probe

PAGE = Path("docs/isolation.md")
LEVELS = ("none", "limits", "landlock", "namespaces", "bwrap")
ORDINARY = 12345
_BEGIN, _END = "<!-- the table -->\n", "<!-- its end -->\n"
_NODE = Path(__file__).with_name("isolation_node.py")
_SECONDS = 100.0
#: Seconds within which a server is ended that fills the disk.
ENDED_WITHIN = 5.0
WAYS_TO_FILL = tuple(isolation_probe.WAYS_TO_FILL)

Results = dict[str, dict[str, Any]]


def kernel() -> str:
    """Say which kernel the table is of, as far as it matters."""
    release = ".".join(re.findall(r"\d+", os.uname().release)[:2])
    try:
        return f"Linux {release}, Landlock version {landlock.version()}"
    except OSError:
        return f"Linux {release}, no Landlock"


def users() -> dict[str, str]:
    """Return whom the node can be here: who, and the uid to take (none: as it is)."""
    if os.getuid() != 0:
        return {"an ordinary user": ""}
    return {"root": "", "an ordinary user": str(ORDINARY)}


async def run(level: str, uid: str, fills: Sequence[str] = (), **variables: str) -> dict[str, Any]:
    """Have one level probed by a node of its own; ``refused`` is why it could not be."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_NODE), level, json.dumps(fills), uid),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
    )
    async with asyncio.timeout(_SECONDS):
        output, errors = await process.communicate()
    text = errors.decode()
    if process.returncode and "LaunchDenied" in text:
        return {"refused": text.rpartition("LaunchDenied: ")[2].strip()}
    assert process.returncode == 0, text
    found: dict[str, Any] = json.loads(output)
    return found


async def probe(uid: str) -> Results:
    """Probe every level as one user."""
    results: Results = {}
    for level in LEVELS:
        results[level] = await run(level, uid)
        if "refused" not in results[level]:
            results[level]["fills"] = await run(level, uid, WAYS_TO_FILL)
    return results


def render(who: str, results: Results) -> str:
    """Return the table of one user."""
    rows = [f"As {who}:", "", f"| attempt | {' | '.join(LEVELS)} |", "|---" * 6 + "|"]
    tried = next(found for found in results.values() if "attempts" in found)
    for words in (*tried["attempts"], *tried["fills"]):
        cells = [cell(results[level], words) for level in LEVELS]
        rows.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join([*rows, ""])


def cell(found: dict[str, Any], words: str) -> str:
    """Return the word for one attempt at one level."""
    if "refused" in found:
        return "?"
    if words in found["attempts"]:
        return "stopped" if found["attempts"][words] else "works"
    filled = found["fills"][words]
    ended = "sandbox.home_mb" in filled["excess"] and filled["seconds"] <= ENDED_WITHIN
    return "ended" if ended and filled["status"] else "works"


def written() -> str:
    """Return what the page says between the marks."""
    return PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0]


def written_of(who: str) -> str:
    """Return the table of one user as the page has it."""
    return written().partition(f"As {who}:")[2].partition("\nAs ")[0]


def promises(text: str) -> list[tuple[str, ...]]:
    """Return the rows of a table, without the columns that depend on the machine's settings."""
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    return [(row[0], *row[3:]) for row in rows if "?" not in row]


def main() -> None:
    """Write the page's table anew."""
    tables = [render(who, asyncio.run(probe(uid))) for who, uid in users().items()]
    text = f'\nMeasured on {kernel()}, with `network = "none"`.\n\n' + "\n".join(tables) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + text + _END + rest.partition(_END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
