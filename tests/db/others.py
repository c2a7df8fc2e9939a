"""Another process that opens a database of this one and closes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_LOOKS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
connection.close()
"""


def another_looks(path: Path) -> None:
    """Have another process read a file, which tidies up after itself where it was the last one."""
    subprocess.run([sys.executable, "-c", _LOOKS, str(path)], check=True, timeout=60)
