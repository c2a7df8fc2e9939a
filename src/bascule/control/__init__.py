"""The control plane: the single source of truth. It starts no server and calls no tool.

It never imports the node, the loop or a door.
"""
