"""The registry: records of every kind under one revision, with history and watch.

``service.py`` is the one layer that REST, the command line and the loader use; below it
``store.py`` says what a store is, with one on SQLite, and ``hub.py`` fans
changes out to watchers.
"""

from bascule.control.registry.service import RegistryService, open_registry
from bascule.control.registry.store import Author, Bookmark, Change, Store, Stored, View

__all__ = [
    "Author",
    "Bookmark",
    "Change",
    "RegistryService",
    "Store",
    "Stored",
    "View",
    "open_registry",
]
