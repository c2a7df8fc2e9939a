"""Clients of Bascule's own HTTP faces, for other machines, commands and nodes.

``http.py`` sends and reads; ``registry.py`` and ``tools.py`` know the addresses of each face.
"""
