"""Clients of Bascule's own HTTP faces, for other machines, commands and nodes.

``http.py`` sends and reads; ``registry.py``, ``tools.py`` and ``snapshots.py`` know the addresses
of each face.
"""
