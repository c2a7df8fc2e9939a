"""Databases: the plumbing that the registry and the ledger share, and none of their meaning.

Below: the standard library's sqlite3. Above: ``bascule.control.registry`` and whoever else keeps
something on disk.
"""

from bascule.db.sqlite import Database, Migration, StoreUnavailable

__all__ = ["Database", "Migration", "StoreUnavailable"]
