"""Public names that are loaded when first used, so that importing a package is quick.

Below: nothing. Above: ``bascule``, ``bascule.section`` and ``bascule.manager`` give these two
functions the names that a module may have: ``__getattr__`` and ``__dir__``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_VERSION = frozenset({"__version__"})


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` for names that live in other modules."""

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*homes, *_VERSION.intersection(vars(sys.modules[package]))})

    return load, names
