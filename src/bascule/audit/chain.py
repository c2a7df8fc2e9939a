"""The chain of rows: each has a hash over the one before it, so that no row changes unseen.

Pure functions. What a hash covers is all that a row says: its number, where it came from and the
event's own bytes. The columns for searching are made from those bytes, and compared with them.
"""

from __future__ import annotations

import hashlib
from struct import Struct as Packing
from typing import TypeAlias

from msgspec import Struct, defstruct, json
from msgspec.structs import astuple

#: The hash before the first row.
GENESIS = bytes(32)
_PLACE = Packing(">QQQ")

#: What can be searched for, in the order of the columns; each is a field of some events.
SEARCHED = (
    "timestamp",
    "event",
    "request_id",
    "session_id",
    "task_id",
    "caller",
    "token_id",
    "person",
    "server_id",
    "tool_name",
    "status",
    "code",
    "approval_id",
)
Columns: TypeAlias = tuple[object, ...]


class Row(Struct, frozen=True, gc=False):
    """One event in the ledger: its number, and its journal and place there (0: none).

    ``chain`` is the id of its chain, where there are several, and ``node`` the node that sent it.
    """

    number: int
    journal: int
    place: int
    event: bytes
    hash: bytes
    chain: str = ""
    node: str = ""


def link(before: bytes, number: int, journal: int, place: int, event: bytes) -> bytes:
    """Return the hash of a row."""
    return hashlib.sha256(before + _PLACE.pack(number, journal, place) + event).digest()


#: What is searched for of an event, and nothing else of it: reading it so takes half the time.
_Searched = defstruct("_Searched", [(name, object, None) for name in SEARCHED], gc=False)
_read = json.Decoder(_Searched).decode


def columns(event: bytes) -> Columns:
    """Return what can be searched for of an event, as its row has it.

    Raise ``msgspec.MsgspecError`` or ``UnicodeDecodeError`` for what is no event.
    """
    return astuple(_read(event))
