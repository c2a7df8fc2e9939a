"""The layers drawn in docs/architecture.md are the ones that the gate enforces."""

from __future__ import annotations

import re
import tomllib

from checks.tree import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def without_brackets(layer: str) -> list[str]:
    return sorted(name.strip(" ()") for name in layer.split("|"))


def test_the_drawn_layers_are_the_enforced_ones():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [enforced] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    [drawn] = re.findall(r"^    __main__\n(?:    .+\n)+", PAGE, re.MULTILINE)
    assert [without_brackets(layer) for layer in drawn.splitlines()] == [
        without_brackets(layer) for layer in enforced
    ]
