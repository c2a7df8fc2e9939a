"""What the loop needs of tools that are the caller's own and can be run where it runs."""

from __future__ import annotations

from typing import Protocol

from bascule.model.json import JsonObject
from bascule.model.outcome import Outcome


class OwnTools(Protocol):
    """A caller's own tools. They run one after another, beside those of servers."""

    def has(self, name: str) -> bool:
        """Say whether a tool of this name can be run here; others are handed back."""
        ...

    async def run(self, name: str, arguments: JsonObject, *, max_output_bytes: int) -> Outcome:
        """Run it; every failure comes back as an outcome."""
        ...
