"""Records from files, as they are sent to a registry: many at once, all or none.

They are sent as they stand, so that the registry's validator is the only one; what it says of the
seventh record is told of the file that holds it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from bascule.cli.command_line import typed
from bascule.errors import InvalidRecord
from bascule.files.scan import parse_text, read_plain, record_files, record_items, sections_of
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.kinds import COLLECTIONS, KINDS, Kind

STANDARD_INPUT = "-"
#: What the command and the API show around a list; a list may be applied as it was printed.
_AROUND = frozenset({"store_id", "revision", "mark", "next_cursor"})
_PLACE = re.compile(rf"(?:{'|'.join(KINDS)})\[(\d+)\]\.?")


#: What messages call a text, how to read it, and the kind of a lone record in it.
_Text: TypeAlias = tuple[str, Callable[[], JsonObject], Kind]


class Entry(Struct, frozen=True):
    """One record, and the words that say where it stands."""

    kind: Kind
    data: JsonValue
    source: str


class Batch:
    """Records to be sent together."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        # The order in which the registry counts them: kind by kind.
        self.entries = sorted(entries, key=lambda entry: KINDS.index(entry.kind))

    def body(self) -> JsonObject:
        """Return collections of records, as the import takes them."""
        body: dict[str, list[JsonValue]] = {}
        for entry in self.entries:
            body.setdefault(COLLECTIONS[entry.kind], []).append(entry.data)
        return body

    def located(self, problem: str) -> str:
        """Return what the registry says of its n-th record as said of a file."""
        found = _PLACE.match(problem)
        if found is None or int(found[1]) >= len(self.entries):
            return problem
        return f"{self.entries[int(found[1])].source}: {problem[found.end() :]}"


def read_batch(places: Iterable[str], kind: Kind) -> Batch:
    """Read files, directories and standard input; a record that stands alone is of ``kind``.

    Raise InvalidRecord with every file that cannot be read.
    """
    problems: list[str] = []
    entries: list[Entry] = []
    for place in places:
        for source, read, own in _texts(place, kind):
            try:
                entries += _entries(read(), source, own)
            except InvalidRecord as error:
                problems += [f"{source}: {problem}" for problem in error.problems]
    if not problems and not entries:
        problems = ["there is no record to apply"]
    if problems:
        raise InvalidRecord(problems)
    return Batch(entries)


def read_input(*, relaxed: bool = False) -> JsonObject:
    """Read JSON or TOML from standard input; ``relaxed`` takes JSON as editors write it."""
    return parse_text(sys.stdin.buffer.read(), "standard input", relaxed=relaxed)


def _texts(place: str, kind: Kind) -> Iterable[_Text]:
    path = Path(place)
    if place == STANDARD_INPUT:
        yield "standard input", read_input, kind
    elif path.is_dir():
        for file, name, own in record_files(path, []):
            yield name, partial(read_plain, file), own
    else:
        yield path.name, partial(read_plain, path), kind


def _entries(data: JsonObject, source: str, kind: Kind) -> list[Entry]:
    """Take a text apart into its records."""
    if is_object(data.get("mcpServers")) or is_object(data.get("servers")):
        importing = typed(f"servers import {shlex.quote(source)}")
        raise InvalidRecord(
            [f"is the file of an MCP client, not a record; import it with: {importing}"]
        )
    sections = sections_of(data)
    unknown = sorted(set(data) - set(sections) - _AROUND) if sections else []
    if unknown:
        raise InvalidRecord([f"{name}: is not a kind of record" for name in unknown])
    return [Entry(own, item, where) for where, own, item in record_items(data, source, kind)]
