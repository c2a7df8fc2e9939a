"""The bundled demo: a small MCP server of notes, and the record that describes it.

``bascule.demo.server`` is the process, ``records/`` the directory to hand to a bridge, and
``copies`` makes one that starts the server with the interpreter at hand.
"""

from __future__ import annotations

from pathlib import Path

RECORDS = Path(__file__).with_name("records")
"""A registry directory with the demo's records."""
