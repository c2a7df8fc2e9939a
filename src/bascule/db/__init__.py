"""Databases: the plumbing that the registry and the ledger share, and none of their meaning."""

from bascule.db.sqlite import Database, Migration, StoreUnavailable

__all__ = ["Database", "Migration", "StoreUnavailable"]
