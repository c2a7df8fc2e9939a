"""The registry: records of every kind under one revision, with history and watch.

``service.py`` is the one layer that REST, the command line and the loader use; ``store.py`` says
what a store is, with one on SQLite, and ``hub.py`` fans changes out to watchers.
"""
