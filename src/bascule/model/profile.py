"""The profile record: servers and filters that many tasks share.

A profile and what the task itself says narrow each other; neither adds to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from bascule.model.task import ProfileName, Selection


class ProfileRecord(Selection, frozen=True, kw_only=True, omit_defaults=True):
    """A named bundle of servers and filters; an environment's entry narrows it further."""

    name: ProfileName
    version: Literal[1] = 1
    description: str = ""
    environments: Mapping[str, Selection] = {}
