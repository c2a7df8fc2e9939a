"""The bridge: the one way from a session to a tool.

Below: its ports (``bascule.node.ports``), policy and the model; never the pool, a store or a
network. Above: every door opens sessions here and decides nothing itself. ``call.py`` is the path
of a call, in one screen; the other modules are the parts it names.
"""
