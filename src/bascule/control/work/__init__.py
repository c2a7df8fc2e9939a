"""Work for nodes of other processes: asked by any replica, handed out by the one that has the node.

``rows.py`` is where it is kept, ``channel.py`` both ends of it, ``far_nodes.py`` who is asked.
"""
