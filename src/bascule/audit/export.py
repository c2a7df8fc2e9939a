"""Exported rows: one JSON object a line, with all that the chain needs to be verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from bascule.audit.chain import Row


class ExportedRow(Struct, frozen=True, omit_defaults=True):
    """A row as text: its hash in hexadecimal digits, and the event's JSON as it is stored.

    ``chain`` is the id of its chain, where the ledger has several, ``node`` the node it is of.
    """

    number: int
    journal: int
    place: int
    hash: str
    body: str
    chain: str = ""
    node: str = ""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ExportedRow)


def export_row(row: Row) -> bytes:
    """Return the line of a row, without its end."""
    body = row.event.decode(errors="replace")  # an event is UTF-8: one that is not was changed
    digest = row.hash.hex()
    return _encode(
        ExportedRow(row.number, row.journal, row.place, digest, body, row.chain, row.node)
    )


def rows_of_export(lines: Iterable[bytes]) -> Iterator[Row | None]:
    """Yield the rows of exported lines; None for a line that is not one."""
    for line in lines:
        if line.strip():
            yield _row(line)


def _row(line: bytes) -> Row | None:
    try:
        found = _decoder.decode(line)
        digest, event = bytes.fromhex(found.hash), found.body.encode()
        place = found.number, found.journal, found.place
        return Row(*place, event, digest, found.chain, found.node)
    except (msgspec.DecodeError, ValueError):
        return None
