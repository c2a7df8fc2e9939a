"""Marks every manifest entry that a test carries as shown: ``python -m checks.requirements_flip``.

It rewrites the data modules as text, because the manifest is read by people and a flip must be
a one-line change to review; then it writes ``docs/requirements.md`` anew. Run from the root.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.requirements import ALL, module_of
from tests.requirements.model import Deferred
from tests.requirements.scan import uses_in_tests

ROOT = Path(__file__).resolve().parents[1]
MODEL_NAMES = ("Deferred", "NotPlanned", "Requirement", "Shown", "Work")
MODEL_IMPORT = re.compile(r"^from tests\.requirements\.model import .*$", re.MULTILINE)
PAGE = "import sys; from checks.requirements_page import render; sys.stdout.write(render())"


def main() -> int:
    """Flip what tests carry and regenerate the page; say what was done."""
    carried = {use.id for use in uses_in_tests()}
    ready = [entry for entry in ALL if entry.id in carried and isinstance(entry.state, Deferred)]
    for entry in ready:
        path = ROOT / module_of(entry.id)
        path.write_text(mark_shown(path.read_text("utf-8"), entry.id), "utf-8")
        print(f"shown: {entry.id}")
    write_page()
    print(
        f"{len(ready)} flipped, {len(carried - {entry.id for entry in ALL})} unknown ids in tests"
    )
    return 0


def mark_shown(source: str, entry_id: str) -> str:
    """Rewrite the state of one entry, and the import line to what the module then uses."""
    entry = re.compile(
        rf'(Requirement\(\s*id="{re.escape(entry_id)}",(?:(?!Requirement\().)*?state=)'
        r"Deferred\(\s*Work\.[A-Z_]+,?\s*\)",
        re.DOTALL,
    )
    changed, count = entry.subn(r"\g<1>Shown()", source)
    if count != 1:
        raise ValueError(f"{entry_id}: expected one deferred entry in its module, found {count}")
    return with_model_import(changed)


def with_model_import(source: str) -> str:
    """Import exactly the names of the model that the module uses."""
    body = MODEL_IMPORT.sub("", source, count=1)
    used = ", ".join(name for name in MODEL_NAMES if re.search(rf"\b{name}\b[(.]", body))
    return MODEL_IMPORT.sub(f"from tests.requirements.model import {used}", source, count=1)


def write_page() -> None:
    """Render in a new interpreter, since this one holds the manifest as it was."""
    page = subprocess.run(
        [sys.executable, "-c", PAGE], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    )
    (ROOT / "docs" / "requirements.md").write_text(page.stdout, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
