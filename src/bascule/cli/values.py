"""Words of a command line as values: ``KEY=VALUE`` pairs, read as JSON where they are JSON."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TypeAlias

from bascule.clock import SYSTEM_CLOCK, seconds_of
from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, JsonValue
from bascule.wire.strict_json import StrictJsonError, loads

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
Table: TypeAlias = dict[str, JsonValue]


def pair(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``; a type for argparse."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text}: must be KEY=VALUE")
    return key, value


def revision(text: str) -> int:
    """Read a revision; a type for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: must be a revision number, 0 or more")
    return int(text)


def count(text: str) -> int:
    """Read how many; a type for argparse."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: must be a number, 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Read a time to wait; a type for argparse."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds, more than 0")
    return found


def moment(text: str) -> float:
    """Read a time, or how long ago it was; a type for argparse."""
    ago = re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)
    if ago is not None:
        return SYSTEM_CLOCK.now() - int(ago[1]) * _UNITS[ago[2]]
    try:
        return seconds_of(text)
    except (ValueError, OverflowError):
        words = f"{text}: must be a time such as 2026-01-31T12:00:00Z, or 30s, 15m, 2h, 7d ago"
        raise argparse.ArgumentTypeError(words) from None


def value_of(text: str) -> JsonValue:
    """Return a text as the JSON value it is, else as the text."""
    try:
        return loads(text.encode())
    except StrictJsonError:
        return text


def nested(pairs: Sequence[tuple[str, str]]) -> JsonObject:
    """Return fields by their dotted paths as tables in tables; raise InvalidRecord."""
    tables: dict[str, Table] = {"": {}}
    for path, text in pairs:
        above, _, name = path.rpartition(".")
        _table(tables, above)[name] = value_of(text)
    clashes = [path for path, _ in pairs if path in tables]
    if clashes:
        raise InvalidRecord(
            [f"{path}: give it a value, or fields below it, not both" for path in clashes]
        )
    return tables[""]


def _table(tables: dict[str, Table], path: str) -> Table:
    """Return the table at a path, made with those above it if need be."""
    if path not in tables:
        above, _, name = path.rpartition(".")
        made: Table = {}
        _table(tables, above)[name] = tables[path] = made
    return tables[path]
