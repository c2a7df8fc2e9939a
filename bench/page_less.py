"""``bascule`` without what the admin page alone needs; the commands are the same.

The modules of ``ABSENT`` are not read at all: in their place stands something that serves no route
and waits for ever where it should work.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType

#: The page, its sign-in and its stream, and the endpoints that came with it.
ABSENT = (
    "bascule.audit.figures",
    "bascule.auth.links",
    "bascule.control.api.attention",
    "bascule.control.api.catalogue",
    "bascule.control.api.effective",
    "bascule.control.api.integrations",
    "bascule.control.api.live",
    "bascule.control.api.login",
    "bascule.control.api.overview",
    "bascule.control.api.tool_shelf",
    "bascule.control.web.page",
)


class Nothing:
    """Stands for any function, class and method of a module that is absent."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object, **__: object) -> Nothing:
        return self

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    async def run(self) -> None:
        await asyncio.Event().wait()


class Absent(ModuleType):
    """A module of which every name is nothing."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


if __name__ == "__main__":
    sys.modules.update((name, Absent(name)) for name in ABSENT)
    from bascule.__main__ import main

    main()
