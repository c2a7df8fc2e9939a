"""JSON values as Python holds them, and the two questions everybody asks of one.

Below: nothing. Above: whoever walks a value of unknown shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Say whether a value is a JSON object."""
    return isinstance(value, (dict, Mapping))  # dict first: it is the quick answer


def is_array(value: Any) -> TypeGuard[Sequence[Any]]:
    """Say whether a value is a JSON array."""
    return isinstance(value, (list, tuple))
