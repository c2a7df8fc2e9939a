"""Things with a beginning and an end: ``async with`` starts them and closes them.

Below: nothing. Above: bridges, sessions, clients and doors, which only say how they start and how
they close.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Lifetime(ABC):
    """The base of what is owned by whoever opened it."""

    async def start(self) -> None:  # noqa: B027 - most have nothing to do before they are used
        """Begin; any number of times."""

    @abstractmethod
    async def close(self) -> None:
        """End everything that was begun; any number of times."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
