"""The control plane: the single source of truth. It starts no server and calls no tool.

Below: records, policy, files and the database. Above: the composition roots. It never imports
the node, the loop or a door.
"""
