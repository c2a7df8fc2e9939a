"""``bascule profiles``: the profiles of a running registry.

Below: ``records.py``. Above: ``main``.
"""

from __future__ import annotations

import argparse
from typing import Any

from bascule.cli.records import Noun, add_record_verbs
from bascule.cli.running import shown
from bascule.client.registry import Plain
from bascule.model.json import is_array, is_object


def _row(record: Plain) -> list[str]:
    environments = record.get("environments")
    cells = (
        record.get("name"),
        _joined(record.get("default_server_ids")),
        _joined(record.get("allowed_server_ids")),
        _joined(list(environments) if is_object(environments) else None),
        record.get("description"),
        record.get("owner"),
    )
    return [shown(str(cell or "-")) for cell in cells]


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if is_array(value) else ""


PROFILES = Noun(
    "profile",
    "profiles",
    "name",
    ("profile", "servers", "may use", "environments", "description", "file"),
    _row,
)


def fill(group: argparse.ArgumentParser) -> None:
    """Add the commands of ``profiles``."""
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_record_verbs(actions, PROFILES)
