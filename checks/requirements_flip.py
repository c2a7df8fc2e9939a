"""Marks every behaviour that a test carries as shown: ``python -m checks.requirements_flip``.

It changes one cell of the manifest for each, and writes ``docs/requirements.md`` anew.
"""

from __future__ import annotations

import sys

from tests.requirements import ALL, DEFERRED, MANIFEST, SHOWN
from tests.requirements.scan import uses_in_tests


def main() -> int:
    """Flip what tests carry; say what was done."""
    carried = {use.id for use in uses_in_tests()}
    ready = [one.id for one in ALL if one.id in carried and one.state.startswith(DEFERRED)]
    text = MANIFEST.read_text("utf-8")
    for entry_id in ready:
        text = mark_shown(text, entry_id)
        print(f"shown: {entry_id}")
    MANIFEST.write_text(text, "utf-8")
    unknown = carried - {entry.id for entry in ALL}
    print(f"{len(ready)} flipped, {len(unknown)} unknown ids in tests; run make generate")
    return 0


def mark_shown(manifest: str, entry_id: str) -> str:
    """Return the manifest with one deferred row shown; raise ValueError if there is none."""
    lines = manifest.split("\n")
    rows = [number for number, line in enumerate(lines) if line.startswith(f"| {entry_id} |")]
    if len(rows) != 1 or f"| {DEFERRED}" not in lines[rows[0]]:
        raise ValueError(f"{entry_id}: expected one deferred row")
    before = lines[rows[0]].rpartition(f"| {DEFERRED}")[0]
    lines[rows[0]] = f"{before}| {SHOWN} |"
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
