"""The anchors that a ledger keeps outside of its database."""

from __future__ import annotations

from pathlib import Path

from bascule.audit.ledger_file import ANCHORS_NAME
from bascule.audit.ledger_settings import LedgerSettings
from bascule.db.errors import StoreUnavailable


def kept_anchors(settings: LedgerSettings, data_dir: Path) -> list[bytes] | None:
    """Return the lines of the anchor file; None for those that the ledger itself has."""
    file = Path(settings.anchor_file or data_dir / ANCHORS_NAME)
    return anchor_lines(file, named=settings.anchor_file is not None)


def anchor_lines(file: Path, *, named: bool) -> list[bytes] | None:
    """Return the lines of an anchor file; None for those that the ledger itself has.

    Read them before the rows: an anchor that is added meanwhile covers rows that were not read.
    A file that the settings name and that is not there has no lines.
    """
    try:
        return file.read_bytes().splitlines()
    except FileNotFoundError:
        return [] if named else None
    except OSError as error:
        raise StoreUnavailable(f"{error.filename}: {error.strerror}") from error
