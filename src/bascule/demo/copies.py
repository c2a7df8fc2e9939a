"""A copy of the demo's records that works wherever Bascule does.

The server is started by the interpreter that writes the copy.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from bascule.demo import RECORDS
from bascule.files.scan import scan_directory
from bascule.model.server import Stdio
from bascule.model.task import TaskRecord
from bascule.wire.records import dump


def write_records(folder: Path, task: TaskRecord | None = None) -> None:
    """Write the demo's server, and a task for it, to a folder, which is made if need be."""
    notes = scan_directory(RECORDS).snapshot().servers["notes"]
    args = notes.stdio.args if notes.stdio is not None else ()
    record = replace(notes, stdio=Stdio(command=sys.executable.replace("$", "$$"), args=args))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notes.toml").write_text(dump(record, "toml"), encoding="utf-8")
    if task is None:
        return
    tasks = folder / "tasks"
    tasks.mkdir(exist_ok=True)
    (tasks / f"{task.task_id}.toml").write_text(dump(task, "toml"), encoding="utf-8")
