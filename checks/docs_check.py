"""The documents are true: links lead somewhere, the drawn tree is the real one, pages are fresh."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from checks.generated import GENERATED, stale
from checks.links import broken_links
from checks.traces import traces_in
from checks.tree import ROOT, report, repository_files

README_LINES = 150
PACKAGE = "src/bascule"
ARCHITECTURE = "docs/architecture.md"
DRAWN_TREE = re.compile(rf"^```\w*\n{PACKAGE}/.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENT = 2


def main() -> int:
    """Check all documents."""
    files = repository_files()
    pages = [path for path in files if path.suffix == ".md"]
    complaints = [complaint for page in pages for complaint in broken_links(page, ROOT)]
    complaints += tree_complaints((ROOT / ARCHITECTURE).read_text(encoding="utf-8"), ROOT)
    complaints += readme_complaints((ROOT / "README.md").read_text(encoding="utf-8"))
    complaints += [complaint for path in files for complaint in traces_in(path, ROOT)]
    return report(complaints + stale(GENERATED))


def readme_complaints(text: str) -> list[str]:
    """Say so when the README has grown too long to be read."""
    length = len(text.splitlines())
    if length <= README_LINES:
        return []
    return [f"README.md: {length} lines, at most {README_LINES}: move details to docs/"]


def tree_complaints(page: str, root: Path) -> list[str]:
    """Compare the drawn tree with the folders: nothing invented, nothing at the top left out."""
    drawn = DRAWN_TREE.search(page)
    if drawn is None:
        return [f"{ARCHITECTURE}: no fenced tree that begins with {PACKAGE}/"]
    listed = list(listed_paths(drawn[1]))
    package = root / PACKAGE
    invented = [path for path in listed if not (package / path).exists()]
    top = {path.parts[0] for path in listed}
    forgotten = sorted(name for name in top_level(package) if name not in top)
    return [f"{ARCHITECTURE}: {PACKAGE}/{path} is drawn but is not there" for path in invented] + [
        f"{ARCHITECTURE}: {PACKAGE}/{name} is there but is not drawn" for name in forgotten
    ]


def listed_paths(tree: str) -> Iterator[PurePosixPath]:
    """Read the paths off a tree drawn with two blanks per level, the name first on each line."""
    above: list[str] = []
    for line in tree.splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // INDENT - 1
        name = line.split()[0].rstrip("/")
        above = [*above[:depth], name]
        yield PurePosixPath(*above)


def top_level(package: Path) -> Iterator[str]:
    """List what a reader meets first in the package: modules, and folders that hold modules."""
    for path in package.iterdir():
        is_module = path.suffix == ".py" and path.name != "__init__.py"
        if is_module or (path.is_dir() and any(path.rglob("*.py"))):
            yield path.name


if __name__ == "__main__":
    sys.exit(main())
