"""Files that are made from the source and committed: ``python -m checks.generated [--write]``.

A renderer is imported only when it runs: some of them read the whole test tree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from checks.tree import ROOT, report

Render = Callable[[], str]


def _requirements_page() -> str:
    from checks import requirements_page  # noqa: PLC0415 - imports the whole manifest

    return requirements_page.render()


def _openapi() -> str:
    from checks import openapi  # noqa: PLC0415 - imports all of the process

    return openapi.render()


def _api_page() -> str:
    from checks import api_page  # noqa: PLC0415 - as above

    return api_page.render()


GENERATED: Mapping[str, Render] = {
    "docs/requirements.md": _requirements_page,
    "src/bascule/asgi/openapi.json": _openapi,
    "src/bascule/asgi/reference.html": _api_page,
}


def main(arguments: Sequence[str]) -> int:
    """Compare every generated file with what the source gives, or write them."""
    if "--write" in arguments:
        for name in write(GENERATED):
            print(f"wrote {name}")
        return 0
    return report(stale(GENERATED))


def stale(generated: Mapping[str, Render], root: Path = ROOT) -> list[str]:
    """Name the files that are missing or differ from what the source gives."""
    old = [name for name, render in generated.items() if _text(root / name) != render()]
    return [f"{name}: not what the source gives: run `make generate`" for name in old]


def write(generated: Mapping[str, Render], root: Path = ROOT) -> list[str]:
    """Write the files that are not up to date, and name them."""
    written: list[str] = []
    for name, render in generated.items():
        text = render()
        if _text(root / name) != text:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
            written.append(name)
    return written


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
