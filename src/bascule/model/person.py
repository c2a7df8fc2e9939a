"""How a person is named: the id under which the registry, a token or a request speaks of one."""

from __future__ import annotations

import re

PERSON_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$"
PERSON_WORDS = "must be up to 128 of A-Z a-z 0-9 _ . : @ -, a letter or digit first"
_PERSON = re.compile(PERSON_PATTERN.strip("^$"))


def is_person_id(text: str) -> bool:
    """Say whether a text can be the id of a person."""
    return _PERSON.fullmatch(text) is not None
