"""How a node follows a registry: list, watch from there, and say how it goes.

``ports.py`` has what this needs of a registry and of the node; ``follower.py`` does the work.
"""
