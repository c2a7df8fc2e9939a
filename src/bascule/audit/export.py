"""Exported rows: one JSON object a line, with all that the chain needs to be verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from bascule.audit.chain import Row


class ExportedRow(Struct, frozen=True):
    """A row as text: its hash in hexadecimal digits, and the event's JSON as it is stored."""

    number: int
    journal: int
    place: int
    hash: str
    body: str


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ExportedRow)


def export_row(row: Row) -> bytes:
    """Return the line of a row, without its end."""
    body = row.event.decode(errors="replace")  # an event is UTF-8: one that is not was changed
    return _encode(ExportedRow(row.number, row.journal, row.place, row.hash.hex(), body))


def rows_of_export(lines: Iterable[bytes]) -> Iterator[Row | None]:
    """Yield the rows of exported lines; None for a line that is not one."""
    for line in lines:
        if line.strip():
            yield _row(line)


def _row(line: bytes) -> Row | None:
    try:
        found = _decoder.decode(line)
        return Row(
            found.number, found.journal, found.place, found.body.encode(), bytes.fromhex(found.hash)
        )
    except (msgspec.DecodeError, ValueError):
        return None
