"""What Helm makes of the chart, for as much of its language as the chart uses.

An action is a value, or a value with pipes; there are no conditions and no loops. Anything else is
refused, so that the chart stays as plain as this.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from checks.tree import ROOT

CHART = ROOT / "deploy" / "helm" / "bascule"
ACTION = re.compile(r"(?P<before>\s*)\{\{(?P<trims>-?) (?P<words>.+?) \}\}")
REQUIRED = re.compile(r'required "(?P<complaint>[^"]+)" (?P<path>\S+)')
PIPES: Mapping[str, Callable[[Any], Any]] = {
    "quote": json.dumps,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=True).rstrip("\n"),
}


class Refused(Exception):
    """The chart has no sense with these values."""


def values() -> dict[str, Any]:
    return yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def templates() -> list[Path]:
    return sorted((CHART / "templates").glob("*.yaml"))


def rendered(template: Path, given: Mapping[str, Any], release: str = "bascule") -> str:
    """Return a template's text with these values in the place of their defaults."""
    known = {
        ".Release.Name": release,
        ".Release.Namespace": release,
        **{f".Values.{name}": value for name, value in {**values(), **given}.items()},
    }

    def put(found: re.Match[str]) -> str:
        before = "" if found["trims"] else found["before"]
        return before + str(evaluated(found["words"], known))

    return ACTION.sub(put, template.read_text(encoding="utf-8"))


def evaluated(words: str, known: Mapping[str, Any]) -> Any:
    """Return what an action stands for; KeyError names what nobody declares."""
    first, *pipes = words.split(" | ")
    needed = REQUIRED.fullmatch(first)
    value = known[needed["path"] if needed else first]
    if needed and not value:
        raise Refused(needed["complaint"])
    for pipe in pipes:
        name, _, columns = pipe.partition(" ")
        value = indented(value, int(columns)) if name == "nindent" else PIPES[name](value)
    return value


def indented(text: str, columns: int) -> str:
    """Return a text on lines of its own, so far to the right; empty lines too, as Helm has it."""
    return "".join(f"\n{' ' * columns}{line}" for line in text.split("\n"))
