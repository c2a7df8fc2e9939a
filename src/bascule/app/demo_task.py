"""The demo's task: made once in the registry, so that it can be edited and, removed, stays away.

Its server comes from a folder that every start writes anew.
"""

from __future__ import annotations

from pathlib import Path

from bascule.app.data_dir import DEFAULT_TASK_FILE, DEMO_FOLDER, DEMO_MADE_FILE
from bascule.control.registry.service import RegistryService
from bascule.control.registry.store import Author
from bascule.db.private_files import write_private
from bascule.model.task import TaskRecord
from bascule.wire.records import encode

BY = Author("demo", "the bundled demo's task")


class DemoTask:
    """The task of one data directory's demo."""

    def __init__(self, task: TaskRecord, data_dir: Path, *, empty: bool) -> None:
        self._task = task
        self._id = task.task_id
        self._data = data_dir
        self._made = data_dir / DEMO_MADE_FILE
        self._empty = empty

    async def adopt(self, service: RegistryService) -> None:
        """Before files are loaded: take the task over from a file that used to define it."""
        stored = service.view.get("task", self._id)
        folder = (self._data / DEMO_FOLDER).absolute()
        if stored is None or stored.owner is None:
            return
        if Path(stored.owner).is_relative_to(folder) and not self._empty:
            await service.adopt("task", self._id, BY)
            self._note()

    async def make(self, service: RegistryService) -> None:
        """After files are loaded: make it, if it never was and its name is free."""
        if self._empty:
            await self._take_away(service)
        elif not self._made.exists():
            if service.view.get("task", self._id) is None:
                await service.create("task", encode(self._task), BY)
            self._note()

    def _note(self) -> None:
        write_private(self._made, b"")
        write_private(self._data / DEFAULT_TASK_FILE, f"{self._id}\n".encode(), replace=False)

    async def _take_away(self, service: RegistryService) -> None:
        """Leave the demo out again, unless somebody has edited its task."""
        stored = service.view.get("task", self._id)
        untouched = stored is not None and stored.owner is None and stored.record == self._task
        if untouched and self._made.exists():
            await service.delete("task", self._id, BY)
            self._made.unlink()
