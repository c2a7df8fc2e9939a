"""What a node is assigned: the tasks that it serves, and which of their servers.

In both lists, absent and empty differ: absent does not narrow, empty leaves nothing.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from bascule.model.keyword import refuse_text
from bascule.model.server import Tag
from bascule.model.task import TaskId

#: How many tasks or labels one assignment may name.
MOST_NAMED = 1_000


class Assignment(Struct, frozen=True, kw_only=True):
    """The tasks of a node, and the labels of which a server of theirs must have one.

    A label is a tag of a server's record.
    """

    tasks: Annotated[tuple[TaskId, ...], Meta(max_length=MOST_NAMED)] | None = None
    labels: Annotated[tuple[Tag, ...], Meta(max_length=MOST_NAMED)] | None = None

    def __post_init__(self) -> None:
        refuse_text("Assignment", tasks=self.tasks, labels=self.labels)

    def __str__(self) -> str:
        if self == ALL:
            return "all"
        named = (("tasks", self.tasks), ("labels", self.labels))
        return "; ".join(
            f"{name} {', '.join(values) or 'none'}" for name, values in named if values is not None
        )

    @property
    def part(self) -> str:
        """Return what the part of a registry is called that it stands for; empty: all of it."""
        if self == ALL:
            return ""
        return hashlib.sha256(msgspec.json.encode(self.plain)).hexdigest()[:16]

    @property
    def plain(self) -> Assignment:
        """Return the same with each name once, in order."""
        return Assignment(tasks=_sorted(self.tasks), labels=_sorted(self.labels))


#: What a node has that nobody assigned anything.
ALL = Assignment()


def _sorted(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(set(names)))
