"""How the ledger is kept: the table ``[ledger]`` of ``bascule.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Durability = Literal["kill", "power"]
Days = Annotated[int, Meta(ge=1, le=36_500)]
Size = Annotated[int, Meta(ge=1_048_576, le=1_099_511_627_776)]


class LedgerSettings(Struct, frozen=True, kw_only=True):
    """What the ledger survives, how much it keeps, and what it does when it cannot."""

    enabled: bool = True
    #: What an acknowledged event survives.
    durability: Durability = "kill"
    #: Where checkpoints are appended, best on another disk or as another owner.
    anchor_file: Annotated[str, Meta(min_length=1)] | None = None
    #: Older rows go; for their size none goes that is younger than ``keep_days``.
    max_days: Days = 365
    keep_days: Days = 30
    max_bytes: Size = 4 * 1024**3
    #: Bytes of the journal that the database has not taken in yet.
    max_backlog: Size = 2 * 1024**3
    #: Whether calls that only read go on while the database cannot be written.
    reads_when_down: bool = False
    #: How much one token may have written down in a day.
    token_bytes_per_day: Size = 1024**3
